package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// cpuTime is what this process and the server's processes have used. Unlike elapsed time
// it tells much the same on a machine that is busy with something else. Where the system
// does not tell (only Linux does), it is 0.
type cpuTime struct{ own, server time.Duration }

func (c *cluster) cpuTime() (t cpuTime) {
	t.own = processTime(strconv.Itoa(os.Getpid()))
	for _, pid := range c.serverProcesses() {
		t.server += processTime(pid)
	}
	return t
}

func (t cpuTime) per(before cpuTime, units int) cpuTime {
	if units <= 0 { // a period too short for any
		return cpuTime{}
	}
	return cpuTime{own: (t.own - before.own) / time.Duration(units), server: (t.server - before.server) / time.Duration(units)}
}

func medianCPU(all []cpuTime) cpuTime {
	return cpuTime{
		own:    median(all, func(t cpuTime) time.Duration { return t.own }),
		server: median(all, func(t cpuTime) time.Duration { return t.server }),
	}
}

// serverProcesses are the postmaster and its children.
func (c *cluster) serverProcesses() []string {
	file, err := os.ReadFile(filepath.Join(c.server.Dir(), "data", "postmaster.pid"))
	if err != nil {
		return nil
	}
	first, _, _ := bytes.Cut(file, []byte("\n"))
	postmaster := string(first)
	children, err := os.ReadFile(fmt.Sprintf("/proc/%s/task/%s/children", postmaster, postmaster))
	if err != nil {
		return nil
	}
	return append(strings.Fields(string(children)), postmaster)
}

// processTime is the time that a process' threads were on a CPU, by the scheduler's own
// account: that of /proc/pid/stat is sampled, which misses short turns.
func processTime(pid string) (total time.Duration) {
	tasks, err := filepath.Glob("/proc/" + pid + "/task/*/schedstat")
	if err != nil {
		return 0
	}
	for _, task := range tasks {
		stat, err := os.ReadFile(task)
		if err != nil {
			continue // it has ended
		}
		onCPU, _, _ := strings.Cut(string(stat), " ")
		if n, err := strconv.ParseInt(onCPU, 10, 64); err == nil {
			total += time.Duration(n)
		}
	}
	return total
}
