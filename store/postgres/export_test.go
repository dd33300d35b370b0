package postgres

import "time"

// LookAtOutboxFrom has fan-outs begin at the position, as they do by themselves when
// nothing was below it for a while.
func (s *Store) LookAtOutboxFrom(position int64) {
	f := s.outboxFloor
	f.mu.Lock()
	defer f.mu.Unlock()
	later := time.Now().Add(time.Hour)
	f.at, f.nextAt, f.wholeAt = position, later, later
}
