// Package scenario replays the incidents of internal/scenario through the public
// API, on PostgreSQL and against real receivers, within seconds. Each is told once
// as shipped, where nobody may come to harm, and once without the mechanism that is
// there for it, where the harm must come back.
package scenario
