// Package scenario holds the incidents that the scheduler and the circuit exist
// to prevent, replayed in virtual time: the slow giant, the recovery stampede,
// the noisy tenant, the retry storm, the first of the month and others.
//
// Each incident is a small simulation of receivers and traffic, driven by the
// real scheduler and the real circuit. It is told once as shipped, where nobody
// may come to harm, and once without each mechanism that it is there for, where
// the harm must come back. So no mechanism can quietly stop working.
package scenario
