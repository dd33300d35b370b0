-- mode: transactional
-- Nothing: SQLite gives no space back while it is used. The number is the one at which
-- the PostgreSQL store keeps vacuum from doing so.
SELECT 1;
