package holdfast;

import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.*; // NameMapper, in 3.x
import org.redisson.config.*; // NameMapper, in 4.x

/**
 * One Redisson client that does what it is told: a JSON object a line on stdin, an answer a line
 * on stdout, in the order in which calls end.
 *
 * <p>A request is {id, owner, kind, name, call, args}. Each owner is a thread, as Redisson's owners
 * are; its calls run one after the other, those of others beside them. kind is the factory method
 * of RedissonClient without its "get" ("Lock", "FairLock", "RateLimiter", ...), or "ReadLock" and
 * "WriteLock"; a multi lock has names, and kind "MultiLock". call is a method of the object, args
 * are numbers, texts, lists; "ms" stands for TimeUnit.MILLISECONDS, {"ms": n} for a Duration. Call
 * "threadId" answers the thread's id, "clientId" that of the client,
 * "parked" whether the thread of the owner called name waits for a message about a lock.
 *
 * <p>An answer is {id, value} or {id, error}, where error is the name of the exception's class and
 * its message. The end of stdin shuts the client down; to kill it, kill the process.
 */
public final class Peer {
  private static final Gson GSON = new GsonBuilder().serializeNulls().disableHtmlEscaping().create();

  private final RedissonClient redisson;
  private final PrintStream out;
  private final Map<String, ExecutorService> owners = new ConcurrentHashMap<>();

  private Peer(RedissonClient redisson, PrintStream out) {
    this.redisson = redisson;
    this.out = out;
  }

  /**
   * Arguments: watchdog timeout in ms, sharded subscription mode, what a NameMapper puts before
   * each name (empty: there is none), addresses (several: a cluster).
   */
  public static void main(String[] args) throws Exception {
    PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    System.setOut(System.err); // nobody else's words among the answers
    Config config = new Config();
    config.setLockWatchdogTimeout(Long.parseLong(args[0]));
    if (args.length > 4) {
      var cluster = config.useClusterServers().setScanInterval(1000);
      cluster.setShardedSubscriptionMode(ShardedSubscriptionMode.valueOf(args[1]));
      for (int i = 3; i < args.length; i++) {
        cluster.addNodeAddress(args[i]);
      }
      mapNames(config, cluster, args[2]);
    } else {
      // More waiting names than the 250 that the default has room for.
      mapNames(config, config.useSingleServer().setAddress(args[3]).setSubscriptionsPerConnection(100), args[2]);
    }
    RedissonClient redisson = Redisson.create(config);
    Peer peer = new Peer(redisson, out);
    peer.answer(new JsonObject(), redisson.getId()); // ready

    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line; (line = in.readLine()) != null; ) {
      JsonObject request = JsonParser.parseString(line).getAsJsonObject();
      peer.owners
          .computeIfAbsent(request.get("owner").getAsString(), o -> Executors.newSingleThreadExecutor(r -> daemon(r, o)))
          .execute(() -> peer.run(request));
    }
    redisson.shutdown(0, 2, TimeUnit.SECONDS);
    System.exit(0);
  }

  /** The setting moved: 3.x has it among those of the servers, 4.x in Config. */
  private static void mapNames(Config config, BaseConfig<?> servers, String prefix) throws ReflectiveOperationException {
    if (prefix.isEmpty()) {
      return;
    }
    NameMapper mapper =
        new NameMapper() {
          @Override
          public String map(String name) {
            return prefix + name;
          }

          @Override
          public String unmap(String name) {
            return name.startsWith(prefix) ? name.substring(prefix.length()) : name;
          }
        };
    try {
      Config.class.getMethod("setNameMapper", NameMapper.class).invoke(config, mapper);
    } catch (NoSuchMethodException e) {
      servers.setNameMapper(mapper);
    }
  }

  private static Thread daemon(Runnable r, String name) {
    Thread t = new Thread(r, name);
    t.setDaemon(true);
    return t;
  }

  private void run(JsonObject request) {
    try {
      answer(request, call(request));
    } catch (InvocationTargetException e) {
      fail(request, e.getCause());
    } catch (Throwable e) {
      fail(request, e);
    }
  }

  private synchronized void answer(JsonObject request, Object value) {
    JsonObject o = new JsonObject();
    o.add("id", request.get("id"));
    o.add("value", GSON.toJsonTree(value));
    out.println(GSON.toJson(o));
  }

  private synchronized void fail(JsonObject request, Throwable e) {
    JsonObject o = new JsonObject();
    o.add("id", request.get("id"));
    o.addProperty("error", e.getClass().getSimpleName() + ": " + e.getMessage());
    out.println(GSON.toJson(o));
  }

  private Object call(JsonObject request) throws ReflectiveOperationException {
    String call = request.get("call").getAsString();
    switch (call) {
      case "threadId":
        return Thread.currentThread().getId();
      case "clientId":
        return redisson.getId();
      case "parked":
        return parked(request.get("name").getAsString());
      default:
    }
    JsonArray args = request.has("args") ? request.getAsJsonArray("args") : new JsonArray();
    Object target = object(request);
    for (Method m : target.getClass().getMethods()) {
      Object[] given = m.getName().equals(call) ? convert(m.getParameterTypes(), args) : null;
      if (given != null) {
        m.setAccessible(true);
        return m.invoke(target, given);
      }
    }
    throw new NoSuchMethodException(target.getClass().getSimpleName() + "." + call + args);
  }

  private static boolean parked(String owner) {
    return Thread.getAllStackTraces().entrySet().stream()
        .filter(e -> e.getKey().getName().equals(owner))
        .flatMap(e -> Arrays.stream(e.getValue()))
        .anyMatch(f -> f.getClassName().equals(Semaphore.class.getName()));
  }

  private Object object(JsonObject request) throws ReflectiveOperationException {
    String kind = request.get("kind").getAsString();
    if (kind.equals("MultiLock")) {
      List<RLock> locks = new ArrayList<>();
      for (JsonElement name : request.getAsJsonArray("names")) {
        locks.add(redisson.getLock(name.getAsString()));
      }
      return redisson.getMultiLock(locks.toArray(new RLock[0]));
    }
    String name = request.get("name").getAsString();
    switch (kind) {
      case "ReadLock":
        return redisson.getReadWriteLock(name).readLock();
      case "WriteLock":
        return redisson.getReadWriteLock(name).writeLock();
      default:
        return RedissonClient.class.getMethod("get" + kind, String.class).invoke(redisson, name);
    }
  }

  /** The arguments as these types, or null if they don't fit. */
  private static Object[] convert(Class<?>[] types, JsonArray args) {
    if (types.length != args.size()) {
      return null;
    }
    Object[] given = new Object[types.length];
    for (int i = 0; i < types.length; i++) {
      given[i] = convert(types[i], args.get(i));
      if (given[i] == null) {
        return null;
      }
    }
    return given;
  }

  private static Object convert(Class<?> type, JsonElement arg) {
    if (arg.isJsonArray()) {
      return type == List.class ? GSON.fromJson(arg, List.class) : null;
    }
    if (arg.isJsonObject()) {
      return type == Duration.class ? Duration.ofMillis(arg.getAsJsonObject().get("ms").getAsLong()) : null;
    }
    if (arg.getAsJsonPrimitive().isNumber()) {
      if (type == long.class) {
        return arg.getAsLong();
      }
      return type == int.class ? (Object) arg.getAsInt() : null;
    }
    String text = arg.getAsString();
    if (type == TimeUnit.class) {
      return text.equals("ms") ? TimeUnit.MILLISECONDS : null;
    }
    if (type == RateType.class) {
      return text.equals("OVERALL") || text.equals("PER_CLIENT") ? RateType.valueOf(text) : null;
    }
    return type == String.class ? text : null;
  }
}
