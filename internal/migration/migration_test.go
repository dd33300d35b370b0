package migration_test

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook/internal/migration"
)

func files(pairs ...string) fstest.MapFS {
	fsys := make(fstest.MapFS)
	for i := 0; i < len(pairs); i += 2 {
		fsys[pairs[i]] = &fstest.MapFile{Data: []byte(pairs[i+1])}
	}
	return fsys
}

func threeVersions(t *testing.T) []migration.Migration {
	t.Helper()
	all, err := migration.Load(files(
		"0001_first.up.sql", "-- mode: transactional\nCREATE TABLE {{schema}}.a (id int);\n\nCREATE TABLE {{schema}}.b (id int);\n",
		"0001_first.down.sql", "-- mode: transactional\nDROP TABLE {{schema}}.b;\n\nDROP TABLE {{schema}}.a;\n",
		"0002_index.up.sql", "-- mode: online\nCREATE INDEX CONCURRENTLY IF NOT EXISTS i ON {{schema}}.a (id);\n",
		"0002_index.down.sql", "-- mode: online\nDROP INDEX CONCURRENTLY IF EXISTS {{schema}}.i;\n",
		"0003_third.up.sql", "-- mode: transactional\nSELECT 3;",
		"0003_third.down.sql", "-- mode: transactional\nSELECT -3;",
	), map[string]string{"schema": "hooks"})
	require.NoError(t, err)
	return all
}

func TestLoadReadsPairsInOrderAndPutsNamesIn(t *testing.T) {
	t.Parallel()

	all := threeVersions(t)

	require.Len(t, all, 3)
	assert.Equal(t, migration.Migration{
		Version: 1,
		Name:    "first",
		Up:      migration.Script{Statements: []string{"CREATE TABLE hooks.a (id int)", "CREATE TABLE hooks.b (id int)"}},
		Down:    migration.Script{Statements: []string{"DROP TABLE hooks.b", "DROP TABLE hooks.a"}},
	}, all[0])
	assert.True(t, all[1].Up.Online)
	assert.True(t, all[1].Down.Online)
	assert.Equal(t, []string{"SELECT 3"}, all[2].Up.Statements)
}

func TestLoadKeepsABodyWithSemicolonsWhole(t *testing.T) {
	t.Parallel()
	body := "CREATE TRIGGER t AFTER INSERT ON a BEGIN\n  SELECT 1;\n  SELECT 2;\nEND"

	all, err := migration.Load(files(
		"0001_t.up.sql", "-- mode: transactional\n-- Why it is there.\n"+body+";\n\nSELECT 3;\n",
		"0001_t.down.sql", "-- mode: transactional\nSELECT 4;\n",
	), nil)

	require.NoError(t, err)
	assert.Equal(t, []string{"-- Why it is there.\n" + body, "SELECT 3"}, all[0].Up.Statements)
}

func TestLoadRefusesWhatCannotBeRun(t *testing.T) {
	t.Parallel()
	ok := "-- mode: transactional\nSELECT 1;\n"

	for name, tc := range map[string]struct {
		files   fstest.MapFS
		problem string
	}{
		"a stray file":             {files("readme.md", ""), "readme.md is not named"},
		"a missing down file":      {files("0001_a.up.sql", ok), "0001_a lacks its up or its down file"},
		"a gap":                    {files("0001_a.up.sql", ok, "0001_a.down.sql", ok, "0003_c.up.sql", ok, "0003_c.down.sql", ok), "0003_c.down.sql breaks the numbering"},
		"two names for one number": {files("0001_a.down.sql", ok, "0001_b.up.sql", ok), "0001_b.up.sql breaks the numbering"},
		"no mode":                  {files("0001_a.up.sql", "SELECT 1;", "0001_a.down.sql", ok), "first line is neither"},
		"no statement":             {files("0001_a.up.sql", "-- mode: online\n", "0001_a.down.sql", ok), "holds no statement"},
		"an unknown name":          {files("0001_a.up.sql", "-- mode: online\nSELECT {{other}};", "0001_a.down.sql", ok), "no value for {{other}}"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := migration.Load(tc.files, map[string]string{"schema": "s"})
			require.ErrorContains(t, err, tc.problem)
		})
	}
}

func TestPlanGoesUpAndDown(t *testing.T) {
	t.Parallel()
	all := threeVersions(t)

	for _, tc := range []struct {
		current, target int
		want            []string
	}{
		{0, 3, []string{"0001_first.up", "0002_index.up", "0003_third.up"}},
		{1, 2, []string{"0002_index.up"}},
		{3, 3, nil},
		{3, 1, []string{"0003_third.down", "0002_index.down"}},
		{2, 0, []string{"0002_index.down", "0001_first.down"}},
	} {
		steps, err := migration.Plan(all, tc.current, tc.target)
		require.NoError(t, err)
		var got []string
		for _, step := range steps {
			got = append(got, step.String())
		}
		assert.Equal(t, tc.want, got, "from %d to %d", tc.current, tc.target)
	}
}

func TestPlanRefusesVersionsItDoesNotKnow(t *testing.T) {
	t.Parallel()
	all := threeVersions(t)

	_, err := migration.Plan(all, 4, 3)
	require.ErrorIs(t, err, migration.ErrNewer)
	require.ErrorContains(t, err, "it has version 4, the code knows 3")

	_, err = migration.Plan(all, 3, 4)
	require.ErrorContains(t, err, "no version 4: versions are 0 to 3")
	_, err = migration.Plan(all, 3, -1)
	require.ErrorContains(t, err, "no version -1")
}

func TestExportWritesPlainSQLThatKeepsTheHistory(t *testing.T) {
	t.Parallel()
	steps, err := migration.Plan(threeVersions(t), 0, 2)
	require.NoError(t, err)

	var out strings.Builder
	err = migration.Export(&out, migration.Dialect{
		Prepare: []string{"CREATE SCHEMA IF NOT EXISTS hooks"},
		Begin:   "BEGIN",
		Commit:  "COMMIT",
		Record:  func(s migration.Step) string { return "INSERT " + s.String() },
	}, steps)

	require.NoError(t, err)
	assert.Equal(t, `CREATE SCHEMA IF NOT EXISTS hooks;

-- 0001_first.up

BEGIN;

CREATE TABLE hooks.a (id int);

CREATE TABLE hooks.b (id int);

INSERT 0001_first.up;

COMMIT;

-- 0002_index.up

-- Run these statements one by one, outside of a transaction.

CREATE INDEX CONCURRENTLY IF NOT EXISTS i ON hooks.a (id);

INSERT 0002_index.up;

`, out.String())
}
