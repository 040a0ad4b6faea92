package firestorestore

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	apiv1 "cloud.google.com/go/firestore/apiv1"
	"cloud.google.com/go/firestore/apiv1/firestorepb"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/cputime"
)

// byHand claims and completes without a library, with the same guarantees: one winner, a token, a
// lease, a fence, and a completion that only the owner can write. What comes after a refusal or a
// lost answer is left out.
type byHand struct {
	api  *apiv1.Client
	form form
	db   string
}

func (h byHand) write(tb testing.TB, ws []*firestorepb.Write) []*timestamppb.Timestamp {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), 10*time.Second)
	defer cancel()
	out, err := h.api.BatchWrite(ctx, &firestorepb.BatchWriteRequest{Database: h.db, Writes: ws})
	if err != nil {
		tb.Fatal(err)
	}
	var at []*timestamppb.Timestamp
	for i, st := range out.GetStatus() {
		if st.GetCode() != 0 {
			tb.Fatal(st)
		}
		at = append(at, out.GetWriteResults()[i].GetUpdateTime())
	}
	return at
}

func (h byHand) claim(tb testing.TB, ks []dedupe.Key) []*timestamppb.Timestamp {
	tb.Helper()
	now := time.Now()
	var ws []*firestorepb.Write
	for _, k := range ks {
		ws = append(ws, &firestorepb.Write{
			Operation: &firestorepb.Write_Update{Update: &firestorepb.Document{Name: h.form.name(k), Fields: map[string]*firestorepb.Value{
				"scope": toValue(k.Scope), "key": toValue(k.Key), "status": toValue("claimed"), "token": toValue(rand.Text()),
				"fence": toValue(now.UnixMilli()), "attempt": toValue(int64(1)), "owner": toValue("worker-1"), "message_id": toValue("m-1"),
				"lease_until": toValue(now.Add(time.Minute)), "created": toValue(now), "claimed_at": toValue(now),
			}}},
			CurrentDocument: &firestorepb.Precondition{ConditionType: &firestorepb.Precondition_Exists{Exists: false}},
		})
	}
	return h.write(tb, ws)
}

func (h byHand) complete(tb testing.TB, ks []dedupe.Key, at []*timestamppb.Timestamp) {
	tb.Helper()
	now := time.Now()
	var ws []*firestorepb.Write
	for i, k := range ks {
		ws = append(ws, &firestorepb.Write{
			Operation: &firestorepb.Write_Update{Update: &firestorepb.Document{Name: h.form.name(k), Fields: map[string]*firestorepb.Value{
				"status": toValue("done"), "finished": toValue(now), "updated": toValue(now), "result": toValue([]byte("ok")),
				"expires_at": toValue(now.Add(dedupe.DefaultRetention)),
			}}},
			UpdateMask:      &firestorepb.DocumentMask{FieldPaths: []string{"status", "finished", "updated", "result", "expires_at", "lease_until", "message_id"}},
			CurrentDocument: &firestorepb.Precondition{ConditionType: &firestorepb.Precondition_UpdateTime{UpdateTime: at[i]}},
		})
	}
	h.write(tb, ws)
}

func freshKeys(n int) (ks []dedupe.Key) {
	for range n {
		ks = append(ks, dedupe.Key{Scope: "bench", Key: rand.Text()})
	}
	return ks
}

// median is in nanoseconds; a busy machine moves it less than a sum.
func median(ds []time.Duration) float64 {
	slices.Sort(ds)
	return float64(ds[len(ds)/2])
}

// jobsBy is what n jobs take, batch of them in a call, by eight callers.
func jobsBy(b *testing.B, n, batch int, job func(ks []dedupe.Key)) (took, cpu time.Duration) {
	b.Helper()
	calls := make(chan []dedupe.Key, n)
	for range n / batch {
		calls <- freshKeys(batch)
	}
	close(calls)
	began, used := time.Now(), cputime.Used()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for ks := range calls {
				job(ks)
			}
		})
	}
	wg.Wait()
	return time.Since(began), cputime.Used() - used
}

// BenchmarkJobs is claim and completion by the store beside the same by hand, in turns. One
// operation is 400 jobs of each.
func BenchmarkJobs(b *testing.B) {
	const jobs = 400
	for _, batch := range []int{1, 10, 100} {
		b.Run(fmt.Sprintf("batch=%d", batch), func(b *testing.B) {
			s := emulator(b).store(b, nil)
			h := byHand{s.api, form{docs: s.docs + "-hand"}, s.database}
			ours := func(ks []dedupe.Key) {
				qs, ends := make([]dedupe.ClaimRequest, len(ks)), make([]dedupe.Settlement, len(ks))
				for i, k := range ks {
					qs[i] = request("")
					qs[i].Key = k
					ends[i] = dedupe.Settlement{Key: k, Token: qs[i].Token, To: dedupe.Done, Result: []byte("ok")}
				}
				claimAll(b, s, qs...)
				as, err := s.Settle(b.Context(), ends)
				if err != nil || as[0].Err != nil {
					b.Error(as, err)
				}
			}
			theirs := func(ks []dedupe.Key) { h.complete(b, ks, h.claim(b, ks)) }
			jobsBy(b, jobs, batch, ours)
			jobsBy(b, jobs, batch, theirs)
			var took, cpu [2][]time.Duration
			for n := 0; b.Loop(); n++ {
				for i := range 2 {
					i = (i + n) % 2 // who comes second finds a warmer server
					t, c := jobsBy(b, jobs, batch, []func([]dedupe.Key){ours, theirs}[i])
					took[i], cpu[i] = append(took[i], t), append(cpu[i], c)
				}
			}
			b.ReportMetric(jobs*1e9/median(took[0]), "jobs/s")
			b.ReportMetric(median(took[1])/median(took[0]), "speed/byhand")
			b.ReportMetric(median(cpu[0])/1000/jobs, "cpu-µs/job")
			b.ReportMetric(median(cpu[0])/max(median(cpu[1]), 1), "cpu/byhand")
		})
	}
}

// BenchmarkTen is a claim of ten beside a claim of one, in turns with the same by hand: near, and
// 20 ms away, which is what the service is, because the emulator itself needs some hundred
// microseconds of the same processors for each write. One operation is a round.
func BenchmarkTen(b *testing.B) {
	for _, way := range []time.Duration{0, 20 * time.Millisecond} {
		b.Run(fmt.Sprintf("way=%v", way), func(b *testing.B) {
			s := emulator(b, grpc.WithUnaryInterceptor(func(ctx context.Context, method string, in, out any, c *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption) error {
				if way > 0 {
					<-time.After(way)
				}
				return call(ctx, method, in, out, c, opts...)
			})).store(b, nil)
			h := byHand{s.api, form{docs: s.docs + "-hand"}, s.database}
			var took [4][]time.Duration
			timed := func(i int, f func()) {
				began := time.Now()
				f()
				took[i] = append(took[i], time.Since(began))
			}
			claim := func(n int) func() {
				var qs []dedupe.ClaimRequest
				for _, k := range freshKeys(n) {
					qs = append(qs, request(k.Key))
				}
				return func() { claimAll(b, s, qs...) }
			}
			for range 100 {
				claim(10)()
			}
			for b.Loop() {
				timed(0, claim(1))
				timed(1, claim(10))
				timed(2, func() { h.claim(b, freshKeys(1)) })
				timed(3, func() { h.claim(b, freshKeys(10)) })
			}
			b.ReportMetric(median(took[0])/1000, "one-µs")
			b.ReportMetric(median(took[1])/median(took[0]), "ten/one")
			b.ReportMetric(median(took[3])/median(took[2]), "byhand-ten/one")
		})
	}
}
