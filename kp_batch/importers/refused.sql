SELECT DISTINCT text FROM read_parquet(getvariable('new_refusals')) ORDER BY text
