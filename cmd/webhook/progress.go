package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/outhook/webhook"
)

// progress shows how far a job has come, on the standard error: as a bar on a
// terminal, and elsewhere as a line whenever another tenth is done.
type progress struct {
	app      *app
	terminal bool
	began    time.Time
	handled  int // when it began
	tenth    int // the last one that was told
	idle     bool
}

const (
	barWidth = 30
	// idleAfter is after how long without progress it is said that nobody seems to work.
	idleAfter = 10 * time.Second
)

func (a *app) newProgress() *progress {
	return &progress{app: a, terminal: isTerminal(a.err), began: time.Now(), handled: -1, tenth: -1}
}

func (p *progress) show(job webhook.ReplayJob) {
	if p.handled < 0 {
		p.handled = job.Handled
	}
	share := 1.0
	if job.Matched > 0 {
		share = min(float64(job.Handled)/float64(job.Matched), 1)
	}
	line := fmt.Sprintf("%3.0f %%  %d of %d, %d sent again", share*100, job.Handled, job.Matched, job.Created)
	switch {
	case p.terminal:
		done := int(share * barWidth)
		fmt.Fprintf(p.app.err, "\r[%s%s] %s%s\x1b[K", strings.Repeat("#", done), strings.Repeat(".", barWidth-done), line, p.left(job))
	case int(share*10) > p.tenth:
		p.tenth = int(share * 10)
		fmt.Fprintln(p.app.err, line)
	}
	if !p.idle && job.State == webhook.ReplayRunning && job.Handled == p.handled && time.Since(p.began) > idleAfter {
		p.idle = true
		p.end()
		fmt.Fprintln(p.app.err, "Nothing happens: is a dispatcher running, and is the endpoint active and its circuit closed?")
	}
}

// left guesses how long it will take.
func (p *progress) left(job webhook.ReplayJob) string {
	done := job.Handled - p.handled
	if done <= 0 || job.Handled >= job.Matched {
		return ""
	}
	each := time.Since(p.began) / time.Duration(done)
	return ", " + (each * time.Duration(job.Matched-job.Handled)).Round(time.Second).String() + " left"
}

// end leaves the line of the bar.
func (p *progress) end() {
	if p.terminal {
		fmt.Fprintln(p.app.err)
	}
}
