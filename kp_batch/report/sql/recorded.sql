-- How far the scores are from those that live engines recorded; placeholders are only counted.
FROM recorded_scores;
