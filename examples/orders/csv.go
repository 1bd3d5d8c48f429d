package main

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// columns are those that an orders file must have, in any order.
var columns = []string{"purchased_at", "order_id", "status", "items", "value", "seller_ids"}

const (
	mostFaults = 10      // how many faults of a file are listed
	mostItems  = 100_000 // more items in an order than this are taken for a mistake
	mostIDSize = 200     // bytes; IDs become parts of lock keys
)

// readOrdersFile reads the orders of a CSV file: see [readOrders].
func readOrdersFile(path string) ([]order, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("orders: cannot read the orders: %w: give an existing CSV file with -orders, or leave the flag out to generate orders", err)
	}
	defer f.Close()
	orders, err := readOrders(f)
	if err != nil {
		return nil, fmt.Errorf("orders: %s cannot be used:\n%w", path, err)
	}
	return orders, nil
}

// readOrders reads orders from CSV with a header. It returns the first ten faults at once, each with its line and remedy, and
// no order when there is any fault.
func readOrders(r io.Reader) ([]order, error) {
	in := csv.NewReader(r)
	in.ReuseRecord = true
	header, err := in.Read()
	if errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("the file is empty: it needs the header %s and one line for each order", strings.Join(columns, ","))
	}
	if err != nil {
		return nil, csvFault(err)
	}
	p := rowParser{in: in, line: map[string]int{}}
	if p.at, err = columnsOf(header); err != nil {
		return nil, err
	}

	var orders []order
	var faults []error
	for {
		row, err := in.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			faults = append(faults, csvFault(err))
			if !errors.Is(err, csv.ErrFieldCount) {
				break // a broken quote: the lines after it cannot be told apart
			}
			continue
		}
		o, err := p.parse(row)
		if err != nil {
			faults = append(faults, err)
			continue
		}
		orders = append(orders, o)
	}
	if more := len(faults) - mostFaults; more > 0 {
		faults = append(faults[:mostFaults], fmt.Errorf("and %d more lines", more))
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	if len(orders) == 0 {
		return nil, errors.New("there is a header but no order: add a line for each order")
	}
	return orders, nil
}

// columnsOf returns the position of each column.
func columnsOf(header []string) (map[string]int, error) {
	at := map[string]int{}
	for i, name := range header {
		// Spreadsheets put a byte order mark before the first name.
		at[strings.ToLower(strings.TrimSpace(strings.TrimPrefix(name, "\ufeff")))] = i
	}
	var missing []string
	for _, name := range columns {
		if _, ok := at[name]; !ok {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("line 1: the header has no %s: name the columns %s, in any order",
			strings.Join(missing, ", "), strings.Join(columns, ","))
	}
	return at, nil
}

// csvFault rewrites an error of encoding/csv with a remedy.
func csvFault(err error) error {
	parse, ok := errors.AsType[*csv.ParseError](err)
	switch {
	case !ok:
		return err
	case errors.Is(err, csv.ErrFieldCount):
		return fmt.Errorf("line %d: it has not as many fields as the header: is a comma missing, or does a value with a comma lack its quotes?", parse.Line)
	default:
		return fmt.Errorf("line %d, column %d: %w: put a value with quotes into quotes and double those inside", parse.Line, parse.Column, parse.Err)
	}
}

// rowParser turns lines into orders and remembers where each order was.
type rowParser struct {
	in   *csv.Reader
	at   map[string]int
	line map[string]int // by order ID
}

// parse returns the order of a line, or every fault of it.
func (p *rowParser) parse(row []string) (order, error) {
	line, _ := p.in.FieldPos(0)
	var faults []error
	fault := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf("line %d: "+format, append([]any{line}, args...)...))
	}
	field := func(name string) string { return strings.TrimSpace(row[p.at[name]]) }

	o := order{ID: field("order_id"), Status: field("status"), Sellers: strings.Fields(field("seller_ids"))}
	if before, ok := p.line[o.ID]; ok {
		fault("order_id %q was on line %d already: keep one of the two", o.ID, before)
	} else if fit := checkID(o.ID); fit != "" {
		fault("order_id %s", fit)
	} else {
		p.line[o.ID] = line
	}
	if o.Status == "" {
		fault("status is empty: give one, such as delivered")
	}
	var err error
	if o.PurchasedAt, err = time.Parse(time.RFC3339, field("purchased_at")); err != nil {
		fault("purchased_at is %q: give a time such as 2018-05-31T14:30:00Z", field("purchased_at"))
	}
	if o.Items, err = strconv.Atoi(field("items")); err != nil || o.Items < 1 || o.Items > mostItems {
		fault("items is %q: give a whole number from 1 to %d", field("items"), mostItems)
		o.Items = 0
	}
	if value, err := strconv.ParseFloat(field("value"), 64); err != nil || !(value >= 0 && value < 1e12) {
		fault("value is %q: give an amount of money from 0, such as 136.23", field("value"))
	} else {
		o.ValueCents = int64(math.Round(value * 100))
	}
	if len(o.Sellers) == 0 {
		fault("seller_ids is empty: give at least one seller, several separated by spaces")
	}
	for i, seller := range o.Sellers {
		if fit := checkID(seller); fit != "" {
			fault("a seller %s", fit)
		} else if slices.Contains(o.Sellers[:i], seller) {
			fault("seller_ids has %q twice: name each seller once", seller)
		}
	}
	if o.Items > 0 && o.Items < len(o.Sellers) {
		fault("items is %d but there are %d sellers: each ships at least one item", o.Items, len(o.Sellers))
	}
	return o, errors.Join(faults...)
}

// checkID returns what is wrong with the ID of an order or a seller, or "".
func checkID(id string) string {
	switch {
	case id == "":
		return "is empty: give its ID"
	case len(id) > mostIDSize:
		return fmt.Sprintf("has %d bytes: an ID has at most %d", len(id), mostIDSize)
	default:
		return ""
	}
}
