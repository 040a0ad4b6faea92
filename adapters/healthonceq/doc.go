// Package healthonceq answers the probes of an orchestrator for workers of onceq.
//
//	mux.Handle("/", healthonceq.Handler(worker))
//
// # What each probe says
//
//	/livez    503 when the process itself is stuck: no poller comes back, no heartbeat goes out.
//	          Never because the store, the queue or the network is away: a restart helps nobody
//	          then, and loses what is held.
//	/readyz   503 before the first receive was answered, in a drain, and when the queue or the
//	          store has not answered for 30 s. Never because of a pause: a rollout must finish.
//	          With ?patience=0 any failure counts, as for a startup probe; 1h is the most.
//	/healthz  what both go by, as JSON, always with 200.
//
// A 503 has its sentence in the body. No answer names hosts, users or errors, because anybody who
// reaches the port may ask; the log and [onceq.Health] have these. With several workers, each must
// be live and ready.
//
// # Settings for Kubernetes
//
//	startupProbe:    { httpGet: { path: "/readyz?patience=0", port: 8080 }, periodSeconds: 2, timeoutSeconds: 5, failureThreshold: 60 }
//	livenessProbe:   { httpGet: { path: /livez, port: 8080 }, periodSeconds: 10, timeoutSeconds: 5, failureThreshold: 6 }
//	readinessProbe:  { httpGet: { path: /readyz, port: 8080 }, periodSeconds: 5, timeoutSeconds: 5, failureThreshold: 2 }
//
// A readiness probe stops the rollout of a version that lacks a permission; no Service is needed
// for that. terminationGracePeriodSeconds is DrainTimeout + SettleTimeout + 10 or more. A preStop
// hook is not needed. Scale on how long jobs wait or how many there are, never on CPU.
// docs/health.md has the same for ECS.
package healthonceq
