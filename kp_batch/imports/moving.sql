-- Where traces may stand that were on their way when an import was killed, and were not read now.
FROM days
SEMI JOIN (FROM days WHERE turn > 0) AS marked USING (id)
ANTI JOIN touched USING (id)
