package payloadfs_test

import (
	"bytes"
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/store/payloadfs"
)

func open(t *testing.T) (*payloadfs.Store, string) {
	t.Helper()
	dir := t.TempDir()
	s, err := payloadfs.Open(dir)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	return s, dir
}

func newKey(tenant string) webhook.PayloadKey {
	return webhook.PayloadKey{Tenant: tenant, EventID: uuid.Must(uuid.NewV7())}
}

// files are the names of all files below a directory.
func files(t *testing.T, dir string) (names []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			name, _ := filepath.Rel(dir, path)
			names = append(names, filepath.ToSlash(name))
		}
		return err
	}))
	return names
}

func TestAPayloadComesBackByteForByte(t *testing.T) {
	t.Parallel()
	s, dir := open(t)
	for _, payload := range [][]byte{{}, []byte("x"), {0, 0xff, '\n'}, bytes.Repeat([]byte("large "), 500_000)} {
		key := newKey("acme")
		require.NoError(t, s.Put(t.Context(), key, payload))
		require.NoError(t, s.Put(t.Context(), key, payload), "again")
		got, err := s.Get(t.Context(), key)
		require.NoError(t, err)
		assert.True(t, bytes.Equal(payload, got))
		require.NoError(t, s.Delete(t.Context(), key))
		require.NoError(t, s.Delete(t.Context(), key), "again")
		_, err = s.Get(t.Context(), key)
		require.ErrorIs(t, err, webhook.ErrPayloadMissing)
	}
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, left, "directories go with the last payload in them")
}

func TestNoTenantLeavesTheDirectory(t *testing.T) {
	t.Parallel()
	s, dir := open(t)
	tenants := []string{
		"", ".", "..", "../..", "/etc", `..\..`, "a/../../b", "a\x00b", "CON", "t-acme", "acme", "ACME", "Acme", "é", "x-", "a.b", "a b",
		strings.Repeat("z", 100), strings.Repeat("z", 101), strings.Repeat("/", 128), strings.Repeat("\xff", 128),
	}
	keys := make(map[string]webhook.PayloadKey)
	for _, tenant := range tenants {
		key := newKey(tenant)
		require.NoError(t, s.Put(t.Context(), key, []byte(tenant)), "%q", tenant)
		keys[key.String()] = key
		parsed, ok := webhook.ParsePayloadKey(key.String())
		assert.True(t, ok, "%q", tenant)
		assert.Equal(t, key, parsed)
		assert.LessOrEqual(t, len(key.Folder()), 207)
		assert.Regexp(t, `^[tx]-[-0-9a-z]*$`, key.Folder())
	}
	folders := make(map[string]bool)
	for _, name := range files(t, dir) {
		key, known := keys[name]
		require.True(t, known, name)
		folders[strings.ToLower(key.Folder())] = true
	}
	assert.Len(t, folders, len(tenants), "each tenant has a folder of its own")
	around, err := os.ReadDir(filepath.Dir(dir))
	require.NoError(t, err)
	assert.Len(t, around, 1, "nothing is beside the directory")
}

func TestNoSymbolicLinkLeadsOutOfTheDirectory(t *testing.T) {
	t.Parallel()
	s, dir := open(t)
	outside := t.TempDir()
	require.NoError(t, os.Symlink(outside, filepath.Join(dir, "t-acme")))
	key := newKey("acme")
	require.Error(t, s.Put(t.Context(), key, []byte("x")))
	_, err := s.Get(t.Context(), key)
	require.Error(t, err)
	require.NotErrorIs(t, err, webhook.ErrPayloadMissing, "it may be there")
	assert.Empty(t, files(t, outside))
	for _, err := range s.List(t.Context()) {
		require.NoError(t, err)
	}
}

func TestPayloadsAreTheOwnersAlone(t *testing.T) {
	t.Parallel()
	s, dir := open(t)
	key := newKey("acme")
	require.NoError(t, s.Put(t.Context(), key, []byte("x")))
	info, err := os.Stat(filepath.Join(dir, filepath.FromSlash(key.String())))
	require.NoError(t, err)
	assert.Zero(t, info.Mode().Perm()&0o077)
}

func TestAListHasWholePayloadsAloneAndClearsAwayWhatACrashLeft(t *testing.T) {
	t.Parallel()
	s, dir := open(t)
	want := make(map[webhook.PayloadKey]bool)
	for _, tenant := range []string{"acme", "acme", "Other/.."} {
		key := newKey(tenant)
		want[key] = true
		require.NoError(t, s.Put(t.Context(), key, []byte("x")))
	}
	for key := range want {
		day := filepath.Join(dir, key.Folder(), key.Day())
		require.NoError(t, os.WriteFile(filepath.Join(day, ".partial-new"), nil, 0o600))
		old := filepath.Join(day, ".partial-old")
		require.NoError(t, os.WriteFile(old, nil, 0o600))
		require.NoError(t, os.Chtimes(old, time.Time{}, time.Now().Add(-25*time.Hour)))
		require.NoError(t, os.WriteFile(filepath.Join(day, "README"), nil, 0o600))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "README"), nil, 0o600))

	got := make(map[webhook.PayloadKey]bool)
	for key, err := range s.List(t.Context()) {
		require.NoError(t, err)
		got[key] = true
	}
	assert.Equal(t, want, got)
	names := strings.Join(files(t, dir), " ")
	assert.NotContains(t, names, ".partial-old")
	assert.Contains(t, names, ".partial-new")

	for range s.List(t.Context()) {
		break // which ends it
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, err := range s.List(ended) {
		require.ErrorIs(t, err, context.Canceled)
	}
}

func TestPutsAndDeletesOfOneDirectoryGetAlong(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	other, err := payloadfs.Open(t.TempDir())
	require.NoError(t, err)
	require.NoError(t, other.Close())
	require.Error(t, other.Put(t.Context(), newKey("acme"), nil), "closed")

	var writers sync.WaitGroup
	for range 8 {
		writers.Go(func() {
			for range 20 {
				key := newKey("acme")
				if !assert.NoError(t, s.Put(t.Context(), key, []byte("x"))) {
					return
				}
				_, err := s.Get(t.Context(), key)
				assert.NoError(t, err)
				for _, err := range s.List(t.Context()) {
					assert.NoError(t, err)
				}
				assert.NoError(t, s.Delete(t.Context(), key))
			}
		})
	}
	writers.Wait()
}

func TestADirectoryThatIsNotThereIsRefused(t *testing.T) {
	t.Parallel()
	_, err := payloadfs.Open(filepath.Join(t.TempDir(), "volume"))
	require.ErrorIs(t, err, fs.ErrNotExist)
}
