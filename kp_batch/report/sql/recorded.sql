-- How far the scores are from those that live engines recorded. Given: recorded_scores, see `spread.recorded_of`.
FROM recorded_scores;
