package firestorefake

import (
	"maps"
	"slices"
	"strconv"
	"time"

	pb "cloud.google.com/go/firestore/apiv1/firestorepb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// This file owns transactions and their locks. s.mu is held throughout, but while somebody waits
// for a lock.

// A transaction is one that was begun. It is kept after its end, so that a late call is told from
// one that never was.
type transaction struct {
	over     bool
	readOnly bool
	used     time.Time       // when it was called last
	holds    map[string]bool // the documents that it has read
	waits    []string        // those that it waits for
}

func (s *Server) begin(o *pb.TransactionOptions) (id string) {
	s.made++
	id = "t" + strconv.Itoa(s.made)
	s.txs[id] = &transaction{used: time.Now(), holds: map[string]bool{}, readOnly: o.GetReadOnly() != nil}
	return id
}

// transaction finds one that still stands. One that has ended comes with the error.
func (s *Server) transaction(id []byte) (*transaction, error) {
	s.abandon()
	tx := s.txs[string(id)]
	switch {
	case tx == nil:
		return nil, status.Error(codes.InvalidArgument, "Invalid transaction.")
	case tx.over:
		return tx, status.Error(codes.InvalidArgument, "Transaction is invalid or closed.")
	}
	tx.used = time.Now()
	return tx, nil
}

// end gives a transaction's locks back.
func (s *Server) end(tx *transaction) {
	tx.over, tx.holds, tx.waits = true, nil, nil
	close(s.freed)
	s.freed = make(chan struct{})
}

// abandon ends the transactions that nobody has called for too long.
func (s *Server) abandon() {
	for _, tx := range s.txs {
		if !tx.over && time.Since(tx.used) > s.o.Idle {
			s.end(tx)
		}
	}
}

// lock waits until no other transaction holds one of the documents. own is the caller's
// transaction, nil where it has none. It does not look whether the caller still waits, and neither
// does the emulator: what somebody has given up is written later.
func (s *Server) lock(own *transaction, names []string) error {
	var timeout <-chan time.Time
	for {
		s.abandon()
		held := false
		for _, tx := range s.txs {
			if tx == own || tx.over || tx.readOnly || !slices.ContainsFunc(names, func(n string) bool { return tx.holds[n] }) {
				continue
			}
			held = true
			if own != nil && slices.ContainsFunc(tx.waits, func(n string) bool { return own.holds[n] }) {
				s.end(own) // each waits for the other
				return status.Error(codes.Aborted, crossTransaction)
			}
		}
		if !held {
			return nil
		}
		if own != nil {
			own.waits = names
		}
		if timeout == nil {
			t := time.NewTimer(s.o.LockWait)
			defer t.Stop()
			timeout = t.C
		}
		freed := s.freed
		s.mu.Unlock()
		var err error
		select {
		case <-freed:
		case <-timeout:
			err = status.Error(codes.Aborted, tooMuchContention)
		case <-s.closing:
			err = status.Error(codes.Unavailable, "The server is closing.")
		}
		s.mu.Lock()
		if err != nil {
			if own != nil && !own.over {
				s.end(own)
			}
			return err
		}
		if own != nil && own.over {
			return status.Error(codes.Aborted, crossTransaction)
		}
	}
}

func (s *Server) commit(in *pb.CommitRequest) (*pb.CommitResponse, error) {
	for _, w := range in.GetWrites() {
		if err := checkWrite(in.GetDatabase(), w); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var tx *transaction
	if id := in.GetTransaction(); len(id) > 0 {
		var err error
		if tx, err = s.transaction(id); err != nil {
			return nil, err
		}
		if tx.readOnly && len(in.GetWrites()) > 0 {
			return nil, status.Error(codes.InvalidArgument, "Cannot modify entities in a read-only transaction.")
		}
	}
	names := make([]string, len(in.GetWrites()))
	for i, w := range in.GetWrites() {
		names[i] = target(w)
	}
	if err := s.lock(tx, names); err != nil {
		return nil, err
	}
	if tx != nil {
		defer s.end(tx)
	}
	now := s.tick()
	was := map[string]*document{} // where a write fails, all goes back
	out := &pb.CommitResponse{CommitTime: timestamppb.New(now)}
	for i, w := range in.GetWrites() {
		if _, seen := was[names[i]]; !seen {
			was[names[i]] = s.docs[names[i]]
		}
		next, err := result(w, s.docs[names[i]], now)
		if err != nil {
			for name, d := range was {
				if delete(s.docs, name); d != nil {
					s.docs[name] = d
				}
			}
			s.written -= i
			return nil, err
		}
		out.WriteResults = append(out.WriteResults, s.store(names[i], next))
	}
	if len(names) == 0 {
		out.CommitTime = nil
	}
	return out, nil
}

func (s *Server) batchGet(in *pb.BatchGetDocumentsRequest) (out []*pb.BatchGetDocumentsResponse, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var tx *transaction
	switch c := in.GetConsistencySelector().(type) {
	case *pb.BatchGetDocumentsRequest_Transaction:
		if tx, err = s.transaction(c.Transaction); err != nil {
			return nil, err
		}
	case *pb.BatchGetDocumentsRequest_NewTransaction:
		id := s.begin(c.NewTransaction)
		tx = s.txs[id]
		out = append(out, &pb.BatchGetDocumentsResponse{Transaction: []byte(id)})
	case *pb.BatchGetDocumentsRequest_ReadTime:
		return nil, status.Error(codes.Unimplemented, "firestorefake: no reads of the past")
	}
	at := timestamppb.New(s.tick())
	asked := map[string]bool{}
	for _, name := range in.GetDocuments() {
		asked[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(asked)) {
		s.read++
		if tx != nil {
			tx.holds[name] = true
		}
		a := &pb.BatchGetDocumentsResponse{ReadTime: at, Result: &pb.BatchGetDocumentsResponse_Missing{Missing: name}}
		if d := s.docs[name]; d != nil {
			a.Result = &pb.BatchGetDocumentsResponse_Found{Found: d.proto(name, in.GetMask().GetFieldPaths())}
		}
		out = append(out, a)
	}
	return out, nil
}
