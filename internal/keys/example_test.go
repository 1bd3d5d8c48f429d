package keys_test

import (
	"fmt"

	"github.com/railtoken/railtoken/internal/keys"
)

func ExampleEncode() {
	fmt.Println(keys.Encode("order:1042"))
	fmt.Println(keys.Encode("{a} 100%"))
	fmt.Println(keys.Encode(""))
	// Output:
	// order:1042
	// %7Ba%7D%20100%25
	// %
}

func ExampleTag() {
	fmt.Println(keys.Tag("railtoken:lock:{order:1042}:fence"))
	// Output: order:1042
}
