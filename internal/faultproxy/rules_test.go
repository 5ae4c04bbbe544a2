package faultproxy

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMatches(t *testing.T) {
	get, set := []string{"GeT", "k"}, []string{"set", "k", "v"}
	require.True(t, Cmd("get")(get))
	require.True(t, Cmd("SET", "GET")(get))
	require.False(t, Cmd("get")(set))
	require.False(t, Cmd()(get))
	require.False(t, Not(Cmd("get"))(get))
	require.True(t, All()(get))
	require.False(t, All(Cmd("get"), Not(Cmd("get")))(get))
	require.False(t, Prob(0, 1)(get))
	require.True(t, Prob(1, 1)(get))
}

func TestProbRepeatsItsDecisions(t *testing.T) {
	draw := func(seed uint64) (out []bool, yes int) {
		m := Prob(0.3, seed)
		for range 10_000 {
			hit := m(nil)
			out = append(out, hit)
			if hit {
				yes++
			}
		}
		return out, yes
	}
	first, yes := draw(42)
	again, _ := draw(42)
	other, _ := draw(43)
	require.Equal(t, first, again)
	require.NotEqual(t, first, other)
	require.InDelta(t, 3000, yes, 300)
}

func TestFirstRuleThatAppliesDecides(t *testing.T) {
	var s ruleSet
	require.Nil(t, s.match([]string{"get"}))
	once := s.add(Rule{Match: Cmd("get"), Times: 1, Do: DropReply})
	all := s.add(Rule{Do: DropRequest})
	require.Same(t, all, s.match([]string{"set"}))
	require.Same(t, once, s.match([]string{"get"}))
	require.Same(t, all, s.match([]string{"get"}), "a rule is used up after Times requests")
	all.Remove()
	all.Remove()
	require.Nil(t, s.match([]string{"get"}))
	once.Remove()
	require.False(t, s.any.Load())
}

func TestRulesChangeWhileTheyAreUsed(t *testing.T) {
	p, _, direct, ctx := setup(t)
	f := p.Add(Rule{Match: Cmd("incr")})
	var clients, changes sync.WaitGroup
	stop := make(chan struct{})
	changes.Go(func() {
		for !isClosed(stop) {
			g := p.Add(Rule{Match: All(Cmd("incr"), Prob(0.5, 1)), Do: Delay(1)})
			g.Hits()
			g.Remove()
		}
	})
	for range 4 {
		via := viaProxy(t, p)
		clients.Go(func() {
			for range 200 {
				via.Incr(ctx, "n")
			}
		})
	}
	clients.Wait()
	close(stop)
	changes.Wait()
	n, err := direct.Get(ctx, "n").Int()
	require.NoError(t, err)
	require.Equal(t, 800, n)
	require.Equal(t, 800, f.Hits(), "Pass counts and goes first")
}
