package egress

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// localRefresh is how long a list of the host's own addresses is used: addresses come
// and go with containers and failovers, and a new connection asks at most this often.
const localRefresh = 30 * time.Second

// Guard judges URLs and addresses under a policy that may be replaced while it is in
// use. All methods may be called from many goroutines. Make one with [NewGuard]: the
// zero value refuses everything.
type Guard struct {
	state atomic.Pointer[guardState]

	mu       sync.Mutex // guards SetPolicy and watchers
	watchers []func()
}

// guardState is one policy with what was learnt under it. A pointer to it also serves
// as the identity of the policy, see Transport.
type guardState struct {
	rules      *rules
	local      atomic.Pointer[localAddrs]
	listLocal  func() ([]netip.Addr, error)
	refreshing sync.Mutex
}

type localAddrs struct {
	set  map[netip.Addr]struct{}
	read time.Time
}

// NewGuard returns a guard for p. It fails if the policy is invalid or the host's own
// addresses cannot be listed.
func NewGuard(p Policy) (*Guard, error) {
	g := &Guard{}
	if err := g.SetPolicy(p); err != nil {
		return nil, err
	}
	return g, nil
}

// SetPolicy replaces the policy for all that is judged from now on. Connections that
// were pooled under the old one are closed. On an error the old policy stays.
func (g *Guard) SetPolicy(p Policy) error {
	r, err := compile(p)
	if err != nil {
		return err
	}
	st := &guardState{rules: r, listLocal: p.LocalAddrs}
	if st.listLocal == nil {
		st.listLocal = interfaceAddrs
	}
	if err := st.refreshLocal(); err != nil {
		return fmt.Errorf("egress policy: %w", err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.state.Store(st)
	for _, f := range g.watchers {
		f()
	}
	return nil
}

// watch has f called after every change of the policy, while mu is held.
func (g *Guard) watch(f func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.watchers = append(g.watchers, f)
}

// CheckAddr returns nil if a connection to ap is allowed, else a [*BlockedError].
func (g *Guard) CheckAddr(ap netip.AddrPort) error {
	if _, b := g.judge(ap); b != nil {
		return b
	}
	return nil
}

// Control has the signature of [net.Dialer.ControlContext] and refuses what
// [Guard.CheckAddr] refuses, on the address that is about to be connected to. What it
// cannot read it refuses.
func (g *Guard) Control(_ context.Context, network, address string, _ syscall.RawConn) error {
	switch network {
	case "tcp4", "tcp6":
	default:
		return blocked("network " + network + " is not TCP")
	}
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return blocked("unreadable address " + address)
	}
	return g.CheckAddr(ap)
}

// verdict is what is known of an allowed address.
type verdict struct {
	// excerpts tells whether what the peer says may be kept for tenants.
	excerpts bool
}

// judge decides about one address. The order is the contract: what no rule can open,
// what the operator denies, what needs a rule of its own, what a rule opens, and last
// the defaults.
func (g *Guard) judge(ap netip.AddrPort) (verdict, *BlockedError) {
	st := g.state.Load()
	if st == nil {
		return verdict{}, blocked("the guard has no policy")
	}
	r := st.rules
	addr, port := ap.Addr(), ap.Port()
	if !addr.IsValid() || port == 0 {
		return verdict{}, blocked("incomplete address " + ap.String())
	}
	if addr.Zone() != "" {
		return verdict{}, blocked(addr.String() + " has a zone")
	}
	addr = addr.Unmap()
	if contains(r.denied, addr) {
		return verdict{}, blocked(addr.String() + " is denied by the operator")
	}
	for _, p := range r.nat64 {
		if p.Contains(addr) {
			addr = embeddedIPv4(addr, p)
			break
		}
	}
	ap = netip.AddrPortFrom(addr, port)
	if never(addr) {
		return verdict{}, blocked(addr.String() + " is not a unicast address")
	}
	if contains(r.denied, addr) {
		return verdict{}, blocked(addr.String() + " is denied by the operator")
	}

	rule := r.rule(ap)
	exact := rule != nil && rule.Prefix.IsSingleIP()
	if _, is := metadata[addr]; is && !exact {
		return verdict{}, blocked(addr.String() + " is a metadata service")
	}
	if !exact && !addr.IsLoopback() && st.isLocal(addr) {
		return verdict{}, blocked(addr.String() + " is an address of this host")
	}
	if rule != nil {
		return verdict{excerpts: rule.Excerpts || !special(addr)}, nil
	}
	if special(addr) {
		return verdict{}, blocked(addr.String() + " is not a public address")
	}
	if !r.portAllowed(port) {
		return verdict{}, blocked(fmt.Sprintf("port %d is not allowed", port))
	}
	return verdict{excerpts: true}, nil
}

func (st *guardState) isLocal(a netip.Addr) bool {
	if time.Since(st.local.Load().read) > localRefresh && st.refreshing.TryLock() {
		// An error keeps the list that was read before: it is stale, not empty.
		_ = st.refreshLocal()
		st.refreshing.Unlock()
	}
	_, is := st.local.Load().set[a]
	return is
}

func (st *guardState) refreshLocal() error {
	list, err := st.listLocal()
	now := time.Now()
	if err != nil {
		if old := st.local.Load(); old != nil {
			st.local.Store(&localAddrs{set: old.set, read: now})
		}
		return err
	}
	set := make(map[netip.Addr]struct{}, len(list))
	for _, a := range list {
		set[a.Unmap().WithZone("")] = struct{}{}
	}
	st.local.Store(&localAddrs{set: set, read: now})
	return nil
}
