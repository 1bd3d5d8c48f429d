package main

import (
	"strings"
	"testing"
	"time"
)

const header = "purchased_at,order_id,status,items,value,seller_ids\n"

const validCSV = header +
	"2018-05-31T14:30:00Z,o1,delivered,3,136.23,s1 s2\n" +
	"2018-05-31T14:31:00Z,o2,shipped,1,0.1,s1\n"

func TestReadOrdersReadsEveryColumn(t *testing.T) {
	t.Parallel()
	orders, err := readOrders(strings.NewReader(validCSV))
	if err != nil || len(orders) != 2 {
		t.Fatal(orders, err)
	}
	o := orders[0]
	if !o.PurchasedAt.Equal(time.Date(2018, 5, 31, 14, 30, 0, 0, time.UTC)) || o.ID != "o1" || o.Status != "delivered" ||
		o.Items != 3 || o.ValueCents != 13623 || strings.Join(o.Sellers, "+") != "s1+s2" {
		t.Errorf("read %+v", o)
	}
	if parts := o.parts(); parts[0] != (part{"s1", 2}) || parts[1] != (part{"s2", 1}) {
		t.Errorf("parts %+v", parts)
	}
	if orders[1].ValueCents != 10 {
		t.Errorf("0.1 is %d cents", orders[1].ValueCents)
	}
}

func TestReadOrdersTakesAnyColumnOrderAndByteOrderMark(t *testing.T) {
	t.Parallel()
	orders, err := readOrders(strings.NewReader("\ufeffSELLER_IDS,note,value,items,status,order_id,purchased_at\n" +
		"\"s1  s2\",\"a, b\",5,2,new,o1,2018-05-31T14:30:00-03:00\n"))
	if err != nil || len(orders) != 1 || orders[0].ID != "o1" || len(orders[0].Sellers) != 2 {
		t.Error(orders, err)
	}
}

func TestReadOrdersNamesLineAndRemedy(t *testing.T) {
	t.Parallel()
	const good = "2018-05-31T14:30:00Z,o1,delivered,1,1,s1\n"
	for name, test := range map[string]struct{ text, want string }{
		"empty file":     {"", "the file is empty"},
		"header only":    {header, "no order"},
		"no header":      {good, "line 1: the header has no purchased_at, order_id"},
		"missing column": {"purchased_at,order_id,status,items,value\n", "no seller_ids"},
		"short line":     {header + good + "2018-05-31T14:30:00Z,o2\n", "line 3: it has not as many fields"},
		"broken quote":   {header + "2018-05-31T14:30:00Z,\"o\"2,new,1,1,s1\n", "line 2, column"},
		"no ID":          {header + "2018-05-31T14:30:00Z, ,new,1,1,s1\n", "line 2: order_id is empty"},
		"long ID":        {header + "2018-05-31T14:30:00Z," + strings.Repeat("x", 201) + ",new,1,1,s1\n", "line 2: order_id has 201 bytes"},
		"same ID":        {header + good + good, `line 3: order_id "o1" was on line 2 already`},
		"no status":      {header + "2018-05-31T14:30:00Z,o1,,1,1,s1\n", "line 2: status is empty"},
		"bad time":       {header + "yesterday,o1,new,1,1,s1\n", `line 2: purchased_at is "yesterday"`},
		"no item":        {header + "2018-05-31T14:30:00Z,o1,new,0,1,s1\n", `line 2: items is "0"`},
		"half an item":   {header + "2018-05-31T14:30:00Z,o1,new,1.5,1,s1\n", `line 2: items is "1.5"`},
		"negative value": {header + "2018-05-31T14:30:00Z,o1,new,1,-1,s1\n", `line 2: value is "-1"`},
		"no number":      {header + "2018-05-31T14:30:00Z,o1,new,1,NaN,s1\n", `line 2: value is "NaN"`},
		"no seller":      {header + "2018-05-31T14:30:00Z,o1,new,1,1,\n", "line 2: seller_ids is empty"},
		"same seller":    {header + "2018-05-31T14:30:00Z,o1,new,2,1,s1 s1\n", `line 2: seller_ids has "s1" twice`},
		"few items":      {header + "2018-05-31T14:30:00Z,o1,new,1,1,s1 s2\n", "line 2: items is 1 but there are 2 sellers"},
		"after two":      {header + "\n\"2018-05-31T14:30:00Z\",\"o\n1\",new,1,1,s1\nx,o2,new,1,1,s1\n", `line 5: purchased_at is "x"`},
	} {
		orders, err := readOrders(strings.NewReader(test.text))
		if err == nil || !strings.Contains(err.Error(), test.want) || orders != nil {
			t.Errorf("%s: %d orders and %v, want an error with %q", name, len(orders), err, test.want)
		}
	}
}

func TestReadOrdersReportsAllFaultsUpToTen(t *testing.T) {
	t.Parallel()
	_, err := readOrders(strings.NewReader(header + "x,,,0,y,\n"))
	for _, want := range []string{"order_id", "status", "purchased_at", "items", "value", "seller_ids"} {
		if err == nil || !strings.Contains(err.Error(), "line 2: "+want) {
			t.Errorf("no fault of %s in %v", want, err)
		}
	}
	_, err = readOrders(strings.NewReader(header + strings.Repeat("x,a,b,1,1,c\n", 13)))
	if err == nil || !strings.Contains(err.Error(), "and 3 more lines") || strings.Contains(err.Error(), "line 12") {
		t.Errorf("thirteen lines with faults: %v", err)
	}
}

func FuzzReadOrders(f *testing.F) {
	f.Add(validCSV)
	f.Add(header + "\"")
	f.Add("\ufeff" + header + "2018-05-31T14:30:00Z,o1,delivered,1,1e400,s1\n")
	f.Fuzz(func(t *testing.T, text string) {
		orders, err := readOrders(strings.NewReader(text))
		if (err == nil) != (len(orders) > 0) {
			t.Fatalf("%d orders and %v", len(orders), err)
		}
		for _, o := range orders {
			sum := 0
			for _, p := range o.parts() {
				sum += p.Items
				if p.Items < 1 {
					t.Errorf("%+v has a part with nothing in it", o)
				}
			}
			if sum != o.Items || o.ID == "" || o.ValueCents < 0 {
				t.Errorf("%+v was let in", o)
			}
		}
	})
}
