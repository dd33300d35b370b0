package postgres

import (
	"fmt"

	"github.com/outhook/webhook/internal/migration"
)

// statements are the store's SQL with the schema put in, made once. Each text
// stands beside the one method that uses it.
type statements struct {
	// Inside the host's transaction.
	insertEvent, insertKeyedEvent, insertKeys, insertEvents, readKeys statement
	// Fan-out.
	takeOutbox, readShedding, insertDeliveries, insertShed, returnToOutbox, insertUnmatched statement
	// Claims and results.
	countBacklog, ready, claim, claimOldest, renew, record, logLate, cancel statement
	// The order of deliveries, and ends of other kinds.
	markReplayed, removeReplayJobs, insertOrdered, orderKeys, releaseKeys, releasePage, removeOrderHolds statement
	markSent, endUnknown, endOverdue                                                                     statement
	// What a person asks for.
	cancelDelivery, hasten, logTest, lockEndpoint, insertRuns, unfinishedRun, eventGone                          statement
	createReplayJob, getReplayJob, listReplayJobs, listTenantReplayJobs, listEndpointReplayJobs, cancelReplayJob statement
	finishedDeliveries, storedEvents, takeReplayJob, lockReplayJob, advanceReplayJob                             statement
	// Who dispatches what.
	heartbeat, leave, saveHealth, loadHealth, listOpened, takeProbes, readProbes, saveSplit, listSplits statement
	// How endpoints fare, and what is told of it.
	loadVitals, saveVitals, listUnwell, listTenantUnwell, readHealth statement
	countEndpoints, countTenantEndpoints                             statement
	saveActivity, listActivity, removeActivity                       statement
	insertNotices, dueNotices, settleNotices, removeNotices          statement
	listNotices, listTenantNotices, listEndpointNotices              statement
	// Endpoints.
	createEndpoint, updateEndpoint, findEndpoint, getEndpoint, listEndpoints, listTenantEndpoints, changedEndpoints statement
	// The log.
	getEvent, getDelivery, listAttempts, recentAttempts statement
	// Upkeep.
	takeDuty, counted, setCounted, saveCounters               statement
	listAllCounters, listTenantCounters, listEndpointCounters statement
	findOldEvents, removeEvents, removeKeys, removeUnmatched  statement
	insertGonePayloads, gonePayloads, forgetPayloads          statement
	absentEvents, removeVitals                                statement
	// Erasure.
	findErasable, eraseOpen, eraseLog, eraseDead, stillOpen, eraseEndpoint, eraseEvents, eraseRest statement
	// The system.
	now, notify statement
}

func newStatements(names map[string]string) (statements, error) {
	var s statements
	for _, text := range []struct {
		into   *statement
		sql    string
		replan bool
	}{
		{&s.insertEvent, insertEventSQL, false},
		{&s.insertKeyedEvent, insertKeyedEventSQL, false},
		{&s.insertKeys, insertKeysSQL, false},
		{&s.insertEvents, insertEventsSQL, false},
		{&s.readKeys, readKeysSQL, true},

		{&s.takeOutbox, takeOutboxSQL, true},
		{&s.readShedding, readSheddingSQL, true},
		{&s.insertDeliveries, insertDeliveriesSQL, false},
		{&s.insertShed, insertShedSQL, false},
		{&s.returnToOutbox, returnToOutboxSQL, false},
		{&s.insertUnmatched, insertUnmatchedSQL, false},

		{&s.countBacklog, countBacklogSQL, true},
		{&s.ready, readySQL, true},
		{&s.claim, claimSQL, true},
		{&s.claimOldest, claimOldestSQL, true},
		{&s.renew, renewSQL, true},
		{&s.record, recordSQL, true},
		{&s.logLate, logLateSQL, true},
		{&s.cancel, cancelSQL, true},

		{&s.insertOrdered, insertOrderedSQL, false},
		{&s.markReplayed, markReplayedSQL, true},
		{&s.removeReplayJobs, removeReplayJobsSQL, true},
		{&s.orderKeys, orderKeysSQL, true},
		{&s.releaseKeys, releaseKeysSQL + releasedKeys, true},
		{&s.releasePage, releasePageSQL + releasedPage, true},
		{&s.removeOrderHolds, removeOrderHoldsSQL, true},
		{&s.markSent, markSentSQL, true},
		{&s.endUnknown, endUnknownSQL, true},
		{&s.endOverdue, endOverdueSQL, true},

		{&s.cancelDelivery, cancelDeliverySQL, true},
		{&s.hasten, hastenSQL, true},
		{&s.logTest, logTestSQL, false},
		{&s.lockEndpoint, lockEndpointSQL, false},
		{&s.insertRuns, insertRunsSQL, true},
		{&s.unfinishedRun, unfinishedRunSQL, true},
		{&s.eventGone, eventGoneSQL, true},
		{&s.createReplayJob, createReplayJobSQL, false},
		{&s.getReplayJob, getReplayJobSQL, false},
		{&s.listReplayJobs, listReplayJobsSQL, true},
		{&s.listTenantReplayJobs, listTenantReplayJobsSQL, true},
		{&s.listEndpointReplayJobs, listEndpointReplayJobsSQL, true},
		{&s.cancelReplayJob, cancelReplayJobSQL, false},
		{&s.finishedDeliveries, finishedDeliveriesSQL, true},
		{&s.storedEvents, storedEventsSQL, true},
		{&s.takeReplayJob, takeReplayJobSQL, true},
		{&s.lockReplayJob, lockReplayJobSQL, false},
		{&s.advanceReplayJob, advanceReplayJobSQL, false},

		{&s.heartbeat, heartbeatSQL, false},
		{&s.leave, leaveSQL, false},
		{&s.saveHealth, saveHealthSQL, false},
		{&s.loadHealth, loadHealthSQL, true},
		{&s.listOpened, listOpenedSQL, true},
		{&s.saveSplit, saveSplitSQL, false},
		{&s.listSplits, listSplitsSQL, true},
		{&s.takeProbes, takeProbesSQL, false},
		{&s.readProbes, readProbesSQL, true},

		{&s.loadVitals, loadVitalsSQL, true},
		{&s.saveVitals, saveVitalsSQL, false},
		{&s.listUnwell, listUnwellSQL, true},
		{&s.listTenantUnwell, listTenantUnwellSQL, true},
		{&s.readHealth, readHealthSQL, true},
		{&s.countEndpoints, countEndpointsSQL, true},
		{&s.countTenantEndpoints, countTenantEndpointsSQL, true},
		{&s.saveActivity, saveActivitySQL, false},
		{&s.listActivity, listActivitySQL, true},
		{&s.removeActivity, removeActivitySQL, true},
		{&s.insertNotices, insertNoticesSQL, false},
		{&s.dueNotices, dueNoticesSQL, true},
		{&s.settleNotices, settleNoticesSQL, true},
		{&s.removeNotices, removeNoticesSQL, true},
		{&s.listNotices, listNoticesSQL, true},
		{&s.listTenantNotices, listTenantNoticesSQL, true},
		{&s.listEndpointNotices, listEndpointNoticesSQL, true},

		{&s.createEndpoint, createEndpointSQL, false},
		{&s.updateEndpoint, updateEndpointSQL, false},
		{&s.findEndpoint, findEndpointSQL, false},
		{&s.getEndpoint, getEndpointSQL, false},
		{&s.listEndpoints, listEndpointsSQL, true},
		{&s.listTenantEndpoints, listTenantEndpointsSQL, true},
		{&s.changedEndpoints, changedEndpointsSQL, true},

		{&s.getEvent, getEventSQL, true},
		{&s.getDelivery, getDeliverySQL, true},
		{&s.recentAttempts, recentAttemptsSQL, true},
		{&s.listAttempts, listAttemptsSQL, true},

		{&s.takeDuty, takeDutySQL, false},
		{&s.counted, countedSQL, false},
		{&s.setCounted, setCountedSQL, false},
		{&s.saveCounters, saveCountersSQL, false},
		{&s.listAllCounters, listAllCountersSQL, true},
		{&s.listTenantCounters, listTenantCountersSQL, true},
		{&s.listEndpointCounters, listEndpointCountersSQL, true},
		{&s.findOldEvents, findOldEventsSQL, true},
		{&s.removeEvents, removeEventsSQL, true},
		{&s.removeKeys, removeKeysSQL, true},
		{&s.removeUnmatched, removeUnmatchedSQL, true},
		{&s.insertGonePayloads, insertGonePayloadsSQL, false},
		{&s.gonePayloads, gonePayloadsSQL, true},
		{&s.forgetPayloads, forgetPayloadsSQL, true},
		{&s.absentEvents, absentEventsSQL, true},
		{&s.removeVitals, removeVitalsSQL, true},

		{&s.findErasable, findErasableSQL, true},
		{&s.eraseOpen, eraseOpenSQL, true},
		{&s.eraseLog, eraseLogSQL, true},
		{&s.eraseDead, eraseDeadSQL, true},
		{&s.stillOpen, stillOpenSQL, true},
		{&s.eraseEndpoint, eraseEndpointSQL, true},
		{&s.eraseEvents, eraseEventsSQL, true},
		{&s.eraseRest, eraseRestSQL, true},

		{&s.now, nowSQL, false},
		{&s.notify, notifySQL, false},
	} {
		rendered, err := migration.Render(text.sql, names)
		if err != nil {
			return statements{}, fmt.Errorf("postgres: %w", err)
		}
		*text.into = statement{text: rendered, replan: text.replan}
	}
	return s, nil
}
