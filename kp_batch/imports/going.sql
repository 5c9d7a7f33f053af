-- What is replaced in a day, and what goes from there; what has just come is put once more.
SELECT id FROM stands WHERE day = $1
UNION
SELECT id FROM new WHERE day = $1
