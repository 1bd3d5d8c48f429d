package rediswire_test

import (
	"fmt"

	"github.com/railtoken/railtoken/internal/rediswire"
)

func ExampleEncode() {
	fmt.Println(rediswire.Encode("order:1042"))
	fmt.Println(rediswire.Encode("{a} 100%"))
	fmt.Println(rediswire.Encode(""))
	// Output:
	// order:1042
	// %7Ba%7D%20100%25
	// %
}

func ExampleTag() {
	fmt.Println(rediswire.Tag("railtoken:lock:{order:1042}:fence"))
	// Output: order:1042
}
