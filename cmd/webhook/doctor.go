package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/outhook/webhook"
)

// level is how bad a finding is.
type level string

const (
	levelOK      level = "ok"
	levelWarning level = "warning" // works, but not as well as it could, or not for long
	levelProblem level = "problem" // does not work
)

// finding is what a check found.
type finding struct {
	Check string `json:"check"`
	Level level  `json:"level"`
	Found string `json:"found"`
	// Do says what to do about it; empty when nothing is to be done.
	Do string `json:"do,omitempty"`
}

// doctor gathers findings.
type doctor struct {
	db       *database
	policy   *webhook.Transport
	getenv   func(string) string
	limits   limits
	findings []finding
	// service is how the service opens its SQLite file; empty if that was not told.
	service string
}

// limits say from when on something is too much.
type limits struct {
	// deadRows are those of a table that are looked at, if there are as many living ones.
	deadRows int64
	// tableBytes and indexBytes are from what size on a table, or its indexes, are compared
	// with the rows in them.
	tableBytes, indexBytes int64
	// transaction is how old one may be that keeps dead rows in the way.
	transaction time.Duration
	// freeBytes of an SQLite file are worth giving back, and walBytes of its write-ahead
	// log were not emptied for long.
	freeBytes, walBytes int64
}

func defaultLimits() limits {
	return limits{
		deadRows: 100_000, tableBytes: 256 << 20, indexBytes: 256 << 20, transaction: 10 * time.Minute,
		freeBytes: 100 << 20, walBytes: 256 << 20,
	}
}

func (d *doctor) ok(check, format string, args ...any) {
	d.findings = append(d.findings, finding{check, levelOK, fmt.Sprintf(format, args...), ""})
}

func (d *doctor) warn(check, do, format string, args ...any) {
	d.findings = append(d.findings, finding{check, levelWarning, fmt.Sprintf(format, args...), do})
}

func (d *doctor) problem(check, do, format string, args ...any) {
	d.findings = append(d.findings, finding{check, levelProblem, fmt.Sprintf(format, args...), do})
}

// failed tells of a check that could not be made.
func (d *doctor) failed(check string, err error) {
	d.warn(check, "", "cannot be checked: %v", err)
}

func (a *app) doctorCommand() *cobra.Command {
	var policy policyFlags
	var strict bool
	var service string
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check schema, indexes, bloat, notifications, clocks and URLs, and say what to do",
		Long: `Checks what the library depends on and says what to do about what it finds. It changes
nothing. Exit status 4 when there is a problem, with --strict also for a warning.

--allow and --allow-http repeat what the service's Transport allows beyond the strict
default, against which the URLs of all endpoints are checked. --service-dsn is how the
service opens its SQLite file, as modernc.org/sqlite takes it: whether its transactions
wait for one another depends on that.`,
		Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			transport, err := policy.transport()
			if err != nil {
				return err
			}
			db, err := a.open(cmd.Context(), openOptions{})
			if err != nil {
				return err
			}
			defer db.close()
			d := &doctor{db: db, policy: transport, getenv: a.getenv, limits: defaultLimits(), service: service}
			d.examine(cmd.Context())
			if cmd.Context().Err() != nil {
				return cmd.Context().Err()
			}
			return a.printFindings(d.findings, strict)
		},
	}
	policy.register(cmd)
	cmd.Flags().BoolVar(&strict, "strict", false, "warnings count as problems")
	cmd.Flags().StringVar(&service, "service-dsn", "", "SQLite: how the service opens the file")
	return cmd
}

func (a *app) printFindings(findings []finding, strict bool) error {
	count := make(map[level]int)
	for _, f := range findings {
		count[f.Level]++
	}
	if a.json {
		if err := a.printJSON(findings); err != nil {
			return err
		}
	} else {
		colors := map[level]string{levelOK: green, levelWarning: yellow, levelProblem: red}
		for _, f := range findings {
			fmt.Fprintf(a.out, "%s  %-13s %s\n", a.paint(colors[f.Level], fmt.Sprintf("%-7s", f.Level)), f.Check, visible(f.Found))
			if f.Do != "" {
				fmt.Fprintf(a.out, "%24s%s\n", "→ ", visible(f.Do))
			}
		}
		fmt.Fprintf(a.out, "\n%d ok, %d warnings, %d problems\n", count[levelOK], count[levelWarning], count[levelProblem])
	}
	if count[levelProblem] > 0 || strict && count[levelWarning] > 0 {
		return errProblem
	}
	return nil
}

func (d *doctor) examine(ctx context.Context) {
	d.clock(ctx)
	if d.db.pg != nil {
		d.postgresServer(ctx)
	} else {
		d.sqliteFile(ctx)
	}
	if !d.schema(ctx) {
		return // nothing below makes sense without the tables
	}
	d.indexes(ctx)
	if d.db.pg != nil {
		d.postgresTables(ctx)
		d.postgresHorizon(ctx)
		d.postgresPartitions(ctx)
		d.notifications(ctx)
	} else {
		d.ok("notify", "not needed: on SQLite dispatchers of other processes find work by polling")
	}
	d.work(ctx)
	d.urls(ctx)
	d.blocked(ctx)
	d.proxies()
}

const (
	skewWarning = 2 * time.Second
	// skewProblem is below the tolerance of receivers, who compare a signature's
	// timestamp with their own clock.
	skewProblem = 2 * time.Minute
)

// clock compares this machine's clock with the database's.
func (d *doctor) clock(ctx context.Context) {
	const check = "clock"
	before := time.Now()
	now, err := d.db.store.Now(ctx)
	took := time.Since(before)
	if err != nil {
		d.failed(check, err)
		return
	}
	skew := now.Sub(before.Add(took / 2)).Round(time.Millisecond)
	switch {
	case d.db.pg == nil:
		d.ok(check, "SQLite goes by this machine's clock")
	case skew.Abs() >= skewProblem+took:
		d.problem(check, "Set both clocks by NTP. Signatures carry the database's time, and receivers refuse what is 5 minutes off.",
			"the database's clock is %s off this machine's", skew)
	case skew.Abs() >= skewWarning+took:
		d.warn(check, "Set both clocks by NTP.", "the database's clock is %s off this machine's", skew)
	default:
		d.ok(check, "the database's clock is within %s of this machine's; a round trip takes %s",
			max(skew.Abs(), time.Millisecond), took.Round(10*time.Microsecond))
	}
}

func (d *doctor) schema(ctx context.Context) bool {
	const check = "schema"
	status, err := d.db.store.MigrationStatus(ctx)
	switch {
	case err != nil:
		d.failed(check, err)
	case status.Current == 0:
		d.problem(check, "Run 'webhook migrate up', or give --schema or --table-prefix if the tables have other names.",
			"the database has none of the library's tables")
	case status.Current < status.Latest:
		d.problem(check, "Run 'webhook migrate up'. Services may go on meanwhile.", "version %d of %d", status.Current, status.Latest)
	case status.Current > status.Latest:
		d.problem(check, "Use the command that belongs to the service's version of the library.",
			"version %d, but this command knows %d", status.Current, status.Latest)
	default:
		d.ok(check, "version %d, the latest", status.Current)
		return true
	}
	return false
}

var (
	createIndex = regexp.MustCompile(`(?ms)^CREATE (?:UNIQUE )?INDEX (?:CONCURRENTLY )?(?:IF NOT EXISTS )?(\S+).*?;$`)
	dropIndex   = regexp.MustCompile(`(?m)^DROP INDEX (?:CONCURRENTLY )?(?:IF EXISTS )?(\S+?);?$`)
)

// index is one that the migrations make, and how.
type index struct{ name, statement string }

// expectedIndexes are those that the migrations make.
func (d *doctor) expectedIndexes() ([]index, error) {
	var text bytes.Buffer
	if err := d.db.store.MigrationSQL(&text, 0, d.db.store.LatestVersion()); err != nil {
		return nil, err
	}
	bare := func(name string) string {
		if i := strings.LastIndexByte(name, '.'); i >= 0 {
			name = name[i+1:]
		}
		return strings.Trim(name, `";`)
	}
	var all []index
	for _, m := range createIndex.FindAllStringSubmatch(text.String(), -1) {
		all = append(all, index{bare(m[1]), strings.Join(strings.Fields(m[0]), " ")})
	}
	for _, m := range dropIndex.FindAllStringSubmatch(text.String(), -1) {
		all = slices.DeleteFunc(all, func(i index) bool { return i.name == bare(m[1]) })
	}
	return all, nil
}

func (d *doctor) indexes(ctx context.Context) {
	const check = "indexes"
	expected, err := d.expectedIndexes()
	if err != nil {
		d.failed(check, err)
		return
	}
	var valid map[string]bool
	if d.db.pg != nil {
		valid, err = d.postgresIndexes(ctx)
	} else {
		valid, err = d.sqliteIndexes(ctx)
	}
	if err != nil {
		d.failed(check, err)
		return
	}
	var missing, statements, invalid []string
	for _, want := range expected {
		ok, exists := valid[want.name]
		switch {
		case !exists:
			missing, statements = append(missing, want.name), append(statements, want.statement)
		case !ok:
			invalid = append(invalid, want.name)
		}
		delete(valid, want.name)
	}
	var left []string
	for _, name := range sortedKeys(valid) {
		if !valid[name] {
			left = append(left, name)
		}
	}
	if len(missing) > 0 {
		d.problem(check, "Make them again, on PostgreSQL with CONCURRENTLY after INDEX where a service runs: "+strings.Join(statements, " "),
			"missing: %s", strings.Join(missing, ", "))
	}
	if len(invalid) > 0 {
		d.problem(check, "They are written and never read. REINDEX INDEX CONCURRENTLY each of them.", "not valid: %s", strings.Join(invalid, ", "))
	}
	if len(left) > 0 {
		d.warn(check, "DROP INDEX CONCURRENTLY each of them.", "not valid, and not the library's: %s, as an interrupted REINDEX leaves them behind", strings.Join(left, ", "))
	}
	if len(missing)+len(invalid)+len(left) == 0 {
		d.ok(check, "all %d are there", len(expected))
	}
}

// notifyPatience is how long a notification may take.
const notifyPatience = 3 * time.Second

// notifications sends one to itself.
func (d *doctor) notifications(ctx context.Context) {
	const check = "notify"
	n, ok := d.db.store.(webhook.Notifier)
	if !ok {
		d.ok(check, "not supported by this store: dispatchers find work by polling")
		return
	}
	ctx, cancel := context.WithTimeout(ctx, notifyPatience)
	defer cancel()
	heard := make(chan time.Time, 1)
	var sent time.Time
	// A word that dispatchers know nothing of, and pass over.
	word := webhook.Signal("doctor-" + uuid.NewString())
	err := n.Listen(ctx, func() {
		sent = time.Now()
		if err := n.Notify(ctx, word); err != nil {
			cancel()
		}
	}, func(s webhook.Signal) {
		if s == word {
			heard <- time.Now()
			cancel()
		}
	})
	select {
	case at := <-heard:
		d.ok(check, "a notification took %s", at.Sub(sent).Round(10*time.Microsecond))
	default:
		d.warn(check, "Does the connection go through a pooler in transaction mode? Then give the store a direct one: Config.ListenConn. "+
			"Until then events wait for the next poll, a second at most.", "no notification arrived within %s (%v)", notifyPatience, err)
	}
}

// lateAfter is how long something may be due before somebody should look.
const lateAfter = time.Minute

// work looks for what waits longer than it should.
func (d *doctor) work(ctx context.Context) {
	const check = "dispatchers"
	alive, err := d.dispatchers(ctx)
	if err != nil {
		d.failed(check, err)
		return
	}
	now, err := d.db.store.Now(ctx)
	if err != nil {
		d.failed(check, err)
		return
	}
	waiting, err := d.oldestEvent(ctx)
	if err != nil {
		d.failed(check, err)
		return
	}
	due, late, err := d.oldestDue(ctx, now)
	if err != nil {
		d.failed(check, err)
		return
	}
	busy := !waiting.IsZero() || !due.IsZero()
	switch {
	case alive == 0 && busy:
		d.problem(check, "Start a service that runs a Dispatcher on this database and schema.", "none is running, and there is work")
	case alive == 0:
		d.warn(check, "Start a service that runs a Dispatcher on this database and schema.", "none is running")
	default:
		d.ok(check, "%d running", alive)
	}
	if age := now.Sub(waiting); !waiting.IsZero() && age > lateAfter {
		d.problem("fan-out", "See the dispatchers' log: fan-out has not got to it.", "the oldest event has waited %s for its deliveries", age.Round(time.Second))
	} else {
		d.ok("fan-out", "no event waits")
	}
	if age := now.Sub(due); !due.IsZero() && age > lateAfter {
		d.warn("backlog", "See 'webhook deliveries list --state pending': an open circuit, a rate or a receiver that is too slow holds them.",
			"%d active endpoints have deliveries that have been due for over %s, the oldest for %s", late, lateAfter, age.Round(time.Second))
	} else {
		d.ok("backlog", "no active endpoint has a delivery that has been due for over %s", lateAfter)
	}
}

// readyPage is how many endpoints are looked at in one statement.
const readyPage = 2000

// oldestDue is since when the oldest delivery to an active endpoint has been due, and
// how many endpoints have one that has been for long.
func (d *doctor) oldestDue(ctx context.Context, now time.Time) (oldest time.Time, late int, err error) {
	active := make(map[uuid.UUID]bool)
	err = eachEndpoint(ctx, d.db, webhook.AllTenants(), uuid.Nil, func(r *webhook.EndpointRecord) bool {
		active[r.ID] = r.State == webhook.EndpointActive
		return true
	})
	if err != nil {
		return time.Time{}, 0, err
	}
	lateOnes := make(map[uuid.UUID]bool)
	var after uuid.UUID
	for {
		lanes, err := d.db.store.Ready(ctx, webhook.ReadyParams{Now: now, After: after, Limit: readyPage})
		if err != nil {
			return time.Time{}, 0, err
		}
		if len(lanes) == 0 {
			return oldest, len(lateOnes), nil
		}
		for _, lane := range lanes {
			if !active[lane.EndpointID] || lane.DueAt.After(now) {
				continue
			}
			if oldest.IsZero() || lane.DueAt.Before(oldest) {
				oldest = lane.DueAt
			}
			if now.Sub(lane.DueAt) > lateAfter {
				lateOnes[lane.EndpointID] = true
			}
		}
		after = lanes[len(lanes)-1].EndpointID
	}
}

// urls checks the endpoints' URLs against the policy.
func (d *doctor) urls(ctx context.Context) {
	const check = "egress"
	why := make(map[string]int)
	example := make(map[string]uuid.UUID)
	total := 0
	err := eachEndpoint(ctx, d.db, webhook.AllTenants(), uuid.Nil, func(r *webhook.EndpointRecord) bool {
		total++
		if _, err := d.policy.CheckURL(r.URL); err != nil {
			why[err.Error()]++
			example[err.Error()] = r.ID
		}
		return true
	})
	if err != nil {
		d.failed(check, err)
		return
	}
	for _, reason := range sortedKeys(why) {
		d.problem(check, "Every attempt is blocked unless the service's Transport allows more than this check: repeat that with --allow and --allow-http, or update the endpoint's URL.",
			"the URLs of %d endpoints are refused, of %s for instance: %s", why[reason], example[reason], reason)
	}
	if len(why) == 0 {
		d.ok(check, "the URLs of all %d endpoints keep the rules; their addresses are judged at every connection", total)
	}
}

const (
	// blockedSince is how far back attempts are looked at, and blockedPage how many.
	blockedSince = time.Hour
	blockedPage  = 1000
)

// blocked looks for attempts that the egress guard refused: names that lead to addresses
// which the rules for URLs cannot know.
func (d *doctor) blocked(ctx context.Context) {
	const check = "egress"
	now, err := d.db.store.Now(ctx)
	if err != nil {
		d.failed(check, err)
		return
	}
	attempts, err := d.db.store.RecentAttempts(ctx, webhook.RecentAttemptsParams{Scope: webhook.AllTenants(), Since: now.Add(-blockedSince), Limit: blockedPage})
	if err != nil {
		d.failed(check, err)
		return
	}
	refused := 0
	var last *webhook.RecentAttempt
	for i := range attempts {
		if a := &attempts[i]; a.Class == webhook.ClassBlocked {
			refused++
			if last == nil {
				last = a
			}
		}
	}
	if last != nil {
		d.warn(check, "Is it a receiver of your own, allow its address in TransportConfig.Allow. Is it a customer's, its name leads into a network that must not be reached: 'webhook endpoints show' it, and tell them.",
			"%d of the latest %d attempts were refused, to endpoint %s for instance: %s", refused, len(attempts), last.EndpointID, last.Error)
		return
	}
	d.ok(check, "none of the latest %d attempts was refused", len(attempts))
}

// proxies looks in the environment for what somebody may believe to be a policy.
func (d *doctor) proxies() {
	for _, name := range []string{"HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"} {
		if d.getenv(name) != "" {
			d.warn("egress", "If requests must go through a proxy, set TransportConfig.Proxy.", "%s is set here; the library never uses it", name)
			return
		}
	}
}

// fileSize is 0 for a file that is not there.
func fileSize(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}
