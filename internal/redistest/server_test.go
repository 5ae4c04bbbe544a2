package redistest

import (
	"errors"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

func TestStartServesAnEmptyServerWithoutPersistence(t *testing.T) {
	srv := Start(t)
	ctx := testContext(t)
	rdb := srv.Client(t)

	require.NoError(t, rdb.Ping(ctx).Err())
	require.Zero(t, rdb.DBSize(ctx).Val())
	require.Equal(t, map[string]string{"save": ""}, rdb.ConfigGet(ctx, "save").Val())
	require.Equal(t, map[string]string{"appendonly": "no"}, rdb.ConfigGet(ctx, "appendonly").Val())
	require.Equal(t, map[string]string{"bind": "127.0.0.1"}, rdb.ConfigGet(ctx, "bind").Val())
	require.Contains(t, rdb.Info(ctx, "server").Val(), "process_id:"+strconv.Itoa(srv.Pid())+"\r\n")
}

func TestStartPassesArgumentsAndPassword(t *testing.T) {
	srv := Start(t, "--requirepass", "p@ss/word", "--databases", "3")
	ctx := testContext(t)
	require.Equal(t, "3", srv.Client(t).ConfigGet(ctx, "databases").Val()["databases"])

	opts, err := redis.ParseURL(srv.URL())
	require.NoError(t, err)
	rdb := redis.NewClient(opts)
	defer rdb.Close()
	require.NoError(t, rdb.Ping(ctx).Err())

	stranger := srv.Client(t, func(o *redis.Options) { o.Password = "" })
	require.ErrorContains(t, stranger.Ping(ctx).Err(), "NOAUTH")
}

func TestCleanupEndsTheServer(t *testing.T) {
	var srv *Server
	t.Run("inner", func(t *testing.T) { srv = Start(t) })
	require.Zero(t, srv.Pid())
	requireNobodyListens(t, srv.Addr())
}

func TestStartMainStops(t *testing.T) {
	srv, stop, err := StartMain()
	require.NoError(t, err)
	require.NoError(t, srv.Client(t).Ping(testContext(t)).Err())
	stop()
	stop() // twice is once
	requireNobodyListens(t, srv.Addr())
	_, err = os.Stat(srv.dir)
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestMissingBinaryFailsAndSaysWhatToInstall(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	t.Setenv(binaryEnv, "")
	tb := &fakeTB{TB: t}
	require.True(t, tb.run(func() { Start(tb) }))
	require.Contains(t, tb.lines[0], "apt-get install redis-server")
	require.Contains(t, tb.lines[0], binaryEnv)

	t.Setenv(binaryEnv, "/nowhere/redis-server")
	tb = &fakeTB{TB: t}
	require.True(t, tb.run(func() { Start(tb) }))
	require.Contains(t, tb.lines[0], "/nowhere/redis-server")

	_, _, err := StartMain()
	require.ErrorContains(t, err, "/nowhere/redis-server")
}

func TestBinaryFromEnvironmentIsUsed(t *testing.T) {
	bin, err := findBinary()
	require.NoError(t, err)
	t.Setenv("PATH", t.TempDir())
	t.Setenv(binaryEnv, bin)
	require.Equal(t, bin, Start(t).bin)
}

func TestBadArgumentFailsWithTheServersOwnWords(t *testing.T) {
	tb := &fakeTB{TB: t}
	require.True(t, tb.run(func() { Start(tb, "--no-such-option", "1") }))
	require.Contains(t, tb.lines[0], "no-such-option")
	tb.finish()
}

func TestTakenPortIsNoticed(t *testing.T) {
	other := Start(t)
	// Another server on the port answers PING: it must not pass for ours.
	s := &Server{bin: other.bin, dir: t.TempDir(), args: plainArgs(nil), port: other.port}
	require.ErrorIs(t, s.launch(time.Now().Add(startTimeout)), errPortTaken)
	require.NotZero(t, other.Pid())

	// A listener that never answers, too.
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	s.port = l.Addr().(*net.TCPAddr).Port
	require.ErrorIs(t, s.launch(time.Now().Add(startTimeout)), errPortTaken)
}

func TestKillAndRestartEmptyOnTheSamePort(t *testing.T) {
	srv := Start(t)
	ctx := testContext(t)
	rdb := srv.Client(t)
	require.NoError(t, rdb.Set(ctx, "k", "v", 0).Err())
	addr, pid := srv.Addr(), srv.Pid()

	srv.Kill()
	srv.Kill() // a second time changes nothing
	require.Zero(t, srv.Pid())
	requireNobodyListens(t, addr)

	srv.Restart()
	require.Equal(t, addr, srv.Addr())
	require.NotEqual(t, pid, srv.Pid())
	require.ErrorIs(t, rdb.Get(ctx, "k").Err(), redis.Nil)

	// A running server is replaced.
	pid = srv.Pid()
	srv.Restart()
	require.NotEqual(t, pid, srv.Pid())
	require.NoError(t, rdb.Ping(ctx).Err())
}

func TestRestartWaitsForItsPort(t *testing.T) {
	srv := Start(t)
	srv.Kill()
	l, err := net.Listen("tcp4", srv.Addr())
	require.NoError(t, err)

	var accepting sync.WaitGroup
	accepting.Go(func() { // nobody is answered, nobody is kept waiting
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conn.Close()
		}
	})
	// The port comes free once the new server has failed on it.
	freed := make(chan error, 1)
	go func() {
		failed := poll(startTimeout, func() bool { return strings.Contains(srv.logTail(), "Address already in use") })
		err := l.Close()
		if !failed {
			err = errors.New("the new server did not try the port")
		}
		accepting.Wait()
		freed <- err
	}()
	srv.Restart()
	require.NoError(t, <-freed)
	require.NoError(t, srv.Client(t).Ping(testContext(t)).Err())
}

func TestPauseStopsAnswersAndResumeGivesThem(t *testing.T) {
	srv := Start(t)
	ctx := testContext(t)
	rdb := srv.Client(t, func(o *redis.Options) {
		o.MaxRetries = -1
		o.ReadTimeout = 100 * time.Millisecond
	})
	require.NoError(t, rdb.Ping(ctx).Err())

	srv.Pause()
	var timeout net.Error
	require.ErrorAs(t, rdb.Incr(ctx, "n").Err(), &timeout)
	require.True(t, timeout.Timeout())

	srv.Resume()
	// What was sent during the pause is done now.
	Eventually(t, 5*time.Second, func() bool { return rdb.Get(ctx, "n").Val() == "1" }, "INCR was not carried out")

	srv.Pause()
	srv.Kill() // a frozen server can be killed
	require.Zero(t, srv.Pid())
}

func TestFaultsOnADeadServerFailTheTest(t *testing.T) {
	tb := &fakeTB{TB: t}
	srv := Start(tb)
	srv.Kill()
	srv.Pause()
	srv.Resume()
	require.True(t, tb.Failed())
	require.Contains(t, tb.lines[0], "pause")
	require.Contains(t, tb.lines[1], "resume")
	tb.finish()
}

func TestLogIsShownWhenTheServerDiedOrTheTestFailed(t *testing.T) {
	died := &fakeTB{TB: t}
	srv := Start(died)
	p := srv.proc.Load()
	require.NoError(t, p.cmd.Process.Kill())
	<-p.exited
	died.finish()
	require.Contains(t, strings.Join(died.lines, "\n"), "died during the test")
	require.Contains(t, strings.Join(died.lines, "\n"), "Ready to accept connections")

	failed := &fakeTB{TB: t}
	Start(failed)
	failed.Errorf("something else")
	failed.finish()
	require.NotContains(t, strings.Join(failed.lines, "\n"), "died during the test")
	require.Contains(t, strings.Join(failed.lines, "\n"), "Ready to accept connections")

	fine := &fakeTB{TB: t}
	Start(fine).Kill() // asked for: nothing to report
	fine.finish()
	require.Empty(t, fine.lines)
}

func requireNobodyListens(t *testing.T, addr string) {
	t.Helper()
	conn, err := net.DialTimeout("tcp4", addr, time.Second)
	if err == nil {
		conn.Close()
	}
	require.Error(t, err)
}
