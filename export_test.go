package webhook

// LimitUnrecorded makes d pause at n unrecorded results, so that a test need not
// send ten thousand.
func LimitUnrecorded(d *Dispatcher, n int) { d.maxUnrecorded = n }

// ShedBacklog is what an endpoint may have waiting.
func ShedBacklog(own, tenants int) int { return shedBacklog(own, tenants) }
