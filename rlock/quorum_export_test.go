package rlock

import "github.com/holdfast-go/holdfast/internal/redistest"

// URLs are those of n servers that have nothing to do with each other. stop ends
// them.
func URLs(n int) (urls []string, stop func()) {
	var stops []func()
	for range n {
		s, stop, err := redistest.StartMain()
		if err != nil {
			panic(err)
		}
		urls, stops = append(urls, s.URL()), append(stops, stop)
	}
	return urls, func() {
		for _, stop := range stops {
			stop()
		}
	}
}
