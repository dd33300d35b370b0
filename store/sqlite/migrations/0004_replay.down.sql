-- mode: transactional
DROP TABLE {{prefix}}replay_job;
