package scheduler

// due is what is known of an endpoint's first attempts that are due. Most of them are
// told by number, and then a grant asks for as many: one that asked for more would hold
// slots that others need, for as long as its claim takes, once per endpoint.
type due struct {
	told int  // so many are due that no grant has asked for
	more bool // and there may be others

	// The part of it that was told while a claim was under way, which may have missed it.
	toldSince int
	moreSince bool
}

// arrived takes in that n more are due.
func (d *due) arrived(n int, claiming bool) {
	d.told += n
	if claiming {
		d.toldSince += n
	}
}

// some takes in that an unknown number is due.
func (d *due) some(claiming bool) {
	d.more = true
	d.moreSince = d.moreSince || claiming
}

// left reports whether there is anything that no grant has asked for.
func (d *due) left() bool { return d.told > 0 || d.more }

// granted takes one away, which a grant asks for.
func (d *due) granted() { d.told = max(0, d.told-1) }

// settle takes in what a claim brought of what was asked for, and reports whether
// anything older than the claim is left.
func (d *due) settle(asked, got int) (backlog bool) {
	switch {
	case asked == 0:
	case got < asked: // it found the end
		d.told, d.more = d.toldSince, d.moreSince
	default:
		backlog = d.more || d.told > d.toldSince
	}
	d.toldSince, d.moreSince = 0, false
	return backlog
}
