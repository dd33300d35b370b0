-- mode: transactional
DROP TABLE {{prefix}}duty;

DROP TABLE {{prefix}}counter;
