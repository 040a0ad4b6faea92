// Package worlds plays random worlds in virtual time: workers, functions and relays on one queue
// and one store, while calls go wrong, hosts crash, stand still, are drained and have wrong clocks,
// and operators cancel, replay, pause and limit. Where queue and store are kept is the caller's to
// say, by a Place. At the end no job may be lost, or done twice.
//
// Over a store in memory, a third of the hosts have one handler and a store that never waits. So
// who has a run there makes the store's calls itself (decision 0094).
//
// All that is drawn comes from a seed. A world that fails prints, for each key that is wrong, what
// the producer, the queue, the store, the handlers and the logs of the hosts say of it.
package worlds
