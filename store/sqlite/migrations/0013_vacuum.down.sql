-- mode: transactional
SELECT 1;
