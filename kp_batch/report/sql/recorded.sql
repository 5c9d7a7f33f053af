-- The differences from the scores that live engines recorded. Given: recorded_scores (`spread.recorded_of`).
FROM recorded_scores;
