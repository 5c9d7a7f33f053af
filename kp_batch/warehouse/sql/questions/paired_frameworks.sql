-- Group: like with like
-- Example: FROM paired_frameworks('crewai', 'langgraph');
CREATE MACRO paired_frameworks(a, b) AS TABLE
FROM kp.differences_by(framework, a, b);

COMMENT ON MACRO TABLE paired_frameworks IS 'On the tasks that two frameworks both tried, how does b differ from a? As differences_by.';
