package pubsubfake

import (
	"math/rand/v2"
	"sync"
	"time"

	"cloud.google.com/go/iam/apiv1/iampb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/onceq/onceq/internal/fakeserver"
	"github.com/onceq/onceq/internal/heap"
)

// This file owns what topics and subscriptions share: their lock, the time, and the alarm. The
// methods of Server take the lock for each call, and ring in the timer's goroutine. The Server,
// which brings the calls, is not known here.

// service is all topics and subscriptions of a server.
type service struct {
	o    Options
	base time.Time
	// closing is closed when the server drains: what waits ends.
	closing chan struct{}
	running sync.WaitGroup // goroutines of abandoned pulls

	// mu holds all topics and subscriptions: a call is a few microseconds under it, and moving
	// messages to a dead-letter topic needs no order of locks.
	mu       sync.Mutex
	draining bool
	rnd      *rand.Rand
	topics   map[string]*topic
	subs     map[string]*subscription
	policies map[string]*policy
	ids      uint64              // the message id given last
	nonces   uint64              // the subscription's number given last
	deadline heap.Heap[*message] // held and delayed messages of all subscriptions, by when that ends
	woken    []*subscription     // got ready messages while somebody waits, in this stretch of work
	waiting  int                 // pulls that wait, and streams
	alarm    fakeserver.Alarm
}

func (s *service) now() int64 { return int64(time.Since(s.base)) }

func (s *service) time(at int64) time.Time { return s.base.Add(time.Duration(at)) }

// lock takes the server's lock and brings what is due up to date.
func (s *service) lock() (now int64) {
	s.mu.Lock()
	now = s.now()
	s.expire(now)
	return now
}

// unlock gives the pulls that wait what has become ready, and lets go of the lock.
func (s *service) unlock(now int64) {
	for len(s.woken) > 0 {
		woken := s.woken
		s.woken = nil
		for _, q := range woken {
			q.woken = false
			q.serve(now)
		}
	}
	s.setAlarm(now)
	s.mu.Unlock()
}

// expire ends the holds and delays that are over.
func (s *service) expire(now int64) {
	for s.deadline.Len() > 0 && s.deadline.First().Key <= now {
		at, m := s.deadline.First().Key, s.deadline.First().Item
		s.deadline.Remove(&m.place)
		if m.state == held {
			m.q.fail(m, at)
		} else {
			m.q.show(m)
		}
	}
}

// setAlarm sees to it that the alarm rings when a hold or a delay ends while a pull waits. Nobody
// else needs it, every call looks for itself.
func (s *service) setAlarm(now int64) {
	if s.deadline.Len() == 0 || s.waiting == 0 || s.draining {
		s.alarm.Stop()
		return
	}
	s.alarm.Set(now, s.deadline.First().Key, s.ring)
}

func (s *service) ring() {
	now := s.lock()
	s.alarm.Rung()
	s.unlock(now)
}

// subscription finds one.
func (s *service) subscription(name string) (*subscription, error) {
	if err := checkName("subscription", name, "subscriptions"); err != nil {
		return nil, err
	}
	q := s.subs[name]
	if q == nil {
		return nil, notFound(name)
	}
	return q, nil
}

// topic finds one.
func (s *service) topic(name string) (*topic, error) {
	if err := checkName("topic", name, "topics"); err != nil {
		return nil, err
	}
	t := s.topics[name]
	if t == nil {
		return nil, notFound(name)
	}
	return t, nil
}

// policy is what somebody set as the policy of a topic or a subscription. It is told, and enforced
// nowhere.
type policy struct {
	pb      *iampb.Policy
	version int
}

// pullable finds one that can be pulled from.
func (s *service) pullable(name string) (*subscription, error) {
	q, err := s.subscription(name)
	if err == nil && q.pb.Detached {
		return nil, detached(name)
	}
	return q, err
}

func detached(name string) error {
	return status.Errorf(codes.FailedPrecondition, "Subscription is detached from its topic (resource=%s).", name)
}
