// Package payloadfs keeps large payloads in files: a [webhook.PayloadStore] for hosts whose
// processes share a file system, as those on one machine do.
//
// A payload lies at tenant/day/event id below the store's directory (see
// [webhook.PayloadKey]). It is written next to that, synced and then renamed, so that a
// crash leaves either all of it or nothing under its name. Names are made from ids and
// encoded tenants alone, and nothing outside of the directory is ever opened, not through
// a symbolic link either. Files are readable by their owner only; they are not encrypted.
package payloadfs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
)

const (
	filePerm = 0o600
	dirPerm  = 0o700

	// partial begins the names of files that are being written, and partialAge is how
	// old one is that nobody writes any more.
	partial    = ".partial-"
	partialAge = 24 * time.Hour

	// namesAtOnce is how many names of a directory are read at a time.
	namesAtOnce = 1000

	// putTries is how often a payload is written whose directory was removed meanwhile,
	// because it had become empty.
	putTries = 5
)

// Store keeps payloads in files. Make one with [Open]. It is safe for concurrent use, also
// by several processes on the same directory.
type Store struct {
	root *os.Root

	mu     sync.Mutex // protects synced
	synced map[string]bool
}

var (
	_ webhook.PayloadStore  = (*Store)(nil)
	_ webhook.PayloadLister = (*Store)(nil)
)

// Open returns a store on a directory, which must exist: one that is made when a volume is
// not mounted would take in payloads that nobody finds again.
func Open(dir string) (*Store, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("payloadfs: open the directory: %w", err)
	}
	return &Store{root: root, synced: make(map[string]bool)}, nil
}

// Close releases the directory. Nothing works after it.
func (s *Store) Close() error { return s.root.Close() }

// Put implements [webhook.PayloadStore].
func (s *Store) Put(ctx context.Context, key webhook.PayloadKey, payload []byte) error {
	name := key.String()
	var err error
	for range putTries {
		if err = ctx.Err(); err != nil {
			break
		}
		if err = s.put(name, payload); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		s.forget(path.Dir(name))
	}
	if err != nil {
		return fmt.Errorf("payloadfs: put %s: %w", name, err)
	}
	return nil
}

func (s *Store) put(name string, payload []byte) error {
	dir := path.Dir(name)
	if err := s.makeDir(dir); err != nil {
		return err
	}
	temporary := path.Join(dir, partial+uuid.NewString())
	if err := s.write(temporary, payload); err != nil {
		return errors.Join(err, s.remove(temporary))
	}
	if err := s.root.Rename(temporary, name); err != nil {
		return errors.Join(err, s.remove(temporary))
	}
	return s.sync(dir)
}

func (s *Store) write(name string, payload []byte) error {
	f, err := s.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, filePerm)
	if err != nil {
		return err
	}
	_, err = f.Write(payload)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// makeDir makes a tenant's directory of a day, so that it is there after a crash too.
func (s *Store) makeDir(dir string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.synced[dir] {
		return nil
	}
	if err := s.root.MkdirAll(dir, dirPerm); err != nil {
		return err
	}
	for _, parent := range []string{path.Dir(dir), "."} {
		if err := s.sync(parent); err != nil {
			return err
		}
	}
	if len(s.synced) >= namesAtOnce { // days pass
		clear(s.synced)
	}
	s.synced[dir] = true
	return nil
}

func (s *Store) forget(dir string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.synced, dir)
}

// sync makes what a directory holds durable.
func (s *Store) sync(dir string) error {
	if runtime.GOOS == "windows" {
		return nil // directories cannot be synced there
	}
	d, err := s.root.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Get implements [webhook.PayloadStore].
func (s *Store) Get(ctx context.Context, key webhook.PayloadKey) ([]byte, error) {
	name := key.String()
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("payloadfs: get %s: %w", name, err)
	}
	payload, err := s.root.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("payloadfs: get %s: %w", name, webhook.ErrPayloadMissing)
	}
	if err != nil {
		return nil, fmt.Errorf("payloadfs: get %s: %w", name, err)
	}
	return payload, nil
}

// Delete implements [webhook.PayloadStore]. Directories go with the last payload in them.
func (s *Store) Delete(ctx context.Context, key webhook.PayloadKey) error {
	name := key.String()
	err := ctx.Err()
	if err == nil {
		err = s.remove(name)
	}
	if err != nil {
		return fmt.Errorf("payloadfs: delete %s: %w", name, err)
	}
	day := path.Dir(name)
	if s.root.Remove(day) == nil { // which fails unless it is empty
		s.forget(day)
		_ = s.root.Remove(path.Dir(day))
	}
	return nil
}

func (s *Store) remove(name string) error {
	if err := s.root.Remove(name); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// List implements [webhook.PayloadLister]. It also removes what a crash left half written.
func (s *Store) List(ctx context.Context) iter.Seq2[webhook.PayloadKey, error] {
	return func(yield func(webhook.PayloadKey, error) bool) {
		err := s.each(ctx, ".", func(tenant fs.DirEntry) error {
			return s.each(ctx, tenant.Name(), func(day fs.DirEntry) error {
				dir := path.Join(tenant.Name(), day.Name())
				return s.each(ctx, dir, func(file fs.DirEntry) error {
					name := path.Join(dir, file.Name())
					if strings.HasPrefix(file.Name(), partial) {
						return s.removePartial(name)
					}
					if key, ok := webhook.ParsePayloadKey(name); ok && !yield(key, nil) {
						return errStop
					}
					return nil
				})
			})
		})
		if err != nil && !errors.Is(err, errStop) {
			yield(webhook.PayloadKey{}, fmt.Errorf("payloadfs: list: %w", err))
		}
	}
}

var errStop = errors.New("nobody wants more")

// each calls visit for what a directory holds. What is no directory, or none any more,
// holds nothing.
func (s *Store) each(ctx context.Context, dir string, visit func(fs.DirEntry) error) error {
	info, err := s.root.Lstat(dir)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !info.IsDir() {
		return nil
	}
	if err != nil {
		return err
	}
	d, err := s.root.Open(dir)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	defer func() { _ = d.Close() }() // nothing was written to it
	for {
		entries, err := d.ReadDir(namesAtOnce)
		for _, entry := range entries {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := visit(entry); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) || errors.Is(err, fs.ErrNotExist) { // at its end, or removed meanwhile
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (s *Store) removePartial(name string) error {
	info, err := s.root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil || time.Since(info.ModTime()) < partialAge {
		return err
	}
	return s.remove(name)
}
