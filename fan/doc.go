// Package fan divides a job over many, and goes on when all of them are done: a batch of invoices
// that is sent and then totalled, for example.
//
//	func total(ctx context.Context, j *onceq.Job) error {
//		err := fan.Out(ctx, j, store, "invoices", fan.Children{
//			To: queue, Scope: "billing:invoice", N: len(customers),
//			Message: func(i int) (broker.Outgoing, error) { return Invoice.Message(customers[i]) },
//		})
//		if err != nil {
//			return err // nil once all are done
//		}
//		sum := 0
//		for cents, err := range fan.Results[int](ctx, j, store, "invoices") {
//			if err != nil {
//				return err
//			}
//			sum += cents
//		}
//		return book(ctx, sum)
//	}
//
// There is no counter that could be wrong, and no table of parents. Each child has a key that is
// made of the parent's, and done never changes. So the parent reads its children's records, from
// the first that was not done on, and gives itself back in between (onceq.Postpone): no slot is
// held, and no attempt is used.
//
// docs/fan.md has what happens at each crash, what a look costs, and what a queue must be set to.
//
// Experimental: it may change in any minor version. docs/release.md says what that means.
package fan
