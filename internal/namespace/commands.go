package namespace

import (
	"bytes"
	"strconv"
	"strings"
)

// shape is where a command has names.
type shape int

const (
	unknown shape = iota // which is not sent
	none
	first      // the first argument
	second     // the second, if there is one
	both       // the first two
	all        // all arguments
	fromSecond // all after the first
	pairs      // each other argument, from the first
	counted    // the first argument is their number
	stored     // as counted, after the name of the destination
	script     // as counted, after the text or the SHA-1 of a script
	scripts    // SCRIPT, whose subcommands have texts or SHA-1 sums
	scan       // a pattern after MATCH; the reply has names
	listed     // the first argument is a pattern; the reply has names
	subscribes // all arguments are channels; the connection has messages from then on
	subcommand // that of the subcommand
)

// shapes has those of the commands, by their names in lower case. Those whose replies have names beside contents, such as
// BLPOP and XREAD, are not among them, nor are those that reach the names of others, such as FLUSHDB and FCALL.
var shapes = shapesOf(map[shape]string{
	none: `ping hello auth select client command info config time multi exec discard unwatch wait waitaof role readonly readwrite
		asking quit echo dbsize lastsave latency slowlog debug shutdown replicaof failover bgrewriteaof bgsave save`,
	first: `get set setnx setex psetex getset getdel getex append strlen incr decr incrby decrby incrbyfloat getrange setrange
		setbit getbit bitcount bitpos bitfield bitfield_ro hset hsetnx hget hmget hmset hgetall hkeys hvals hlen hdel hexists
		hincrby hincrbyfloat hstrlen hscan hrandfield hexpire hpexpire hexpireat hpexpireat httl hpttl hpersist hgetdel hgetex
		hsetex lpush rpush lpushx rpushx lpop rpop llen lrange lindex lset lrem ltrim linsert lpos sadd srem smembers sismember
		smismember scard spop srandmember sscan zadd zrem zcard zcount zlexcount zscore zmscore zrank zrevrank zrange
		zrevrange zrangebyscore zrevrangebyscore zrangebylex zrevrangebylex zincrby zpopmin zpopmax zrandmember zremrangebyscore
		zremrangebyrank zremrangebylex zscan expire pexpire expireat pexpireat ttl pttl persist expiretime pexpiretime type
		dump restore xadd xlen xrange xrevrange xtrim xdel xack pfadd geoadd geodist geohash geopos geosearch publish spublish`,
	both:       `rename renamenx rpoplpush brpoplpush lmove blmove smove copy zrangestore geosearchstore`,
	all:        `del unlink exists touch mget watch sinter sunion sdiff sinterstore sunionstore sdiffstore pfcount pfmerge`,
	fromSecond: `bitop`,
	pairs:      `mset msetnx`,
	counted:    `zunion zinter zdiff zintercard sintercard`,
	stored:     `zunionstore zinterstore zdiffstore`,
	script:     `eval evalsha eval_ro evalsha_ro`,
	scripts:    `script`,
	scan:       `scan`,
	listed:     `keys`,
	subscribes: `subscribe unsubscribe psubscribe punsubscribe ssubscribe sunsubscribe`,
	second:     `memory object xinfo`,
	subcommand: `acl cluster pubsub`,
})

// subcommands has the shapes of those that are not none. The subcommand counts as an argument.
var subcommands = map[string]shape{
	"cluster keyslot": second, "acl dryrun": unknown, // see conn.rewrite
	"pubsub channels": unknown, "pubsub numsub": unknown, "pubsub shardchannels": unknown, "pubsub shardnumsub": unknown,
}

func shapesOf(lists map[shape]string) map[string]shape {
	all := map[string]shape{}
	for s, names := range lists {
		for name := range strings.FieldsSeq(names) {
			all[name] = s
		}
	}
	return all
}

// shapeOf returns that of a command, which has its name and its arguments.
func shapeOf(args [][]byte) shape {
	name := string(bytes.ToLower(args[0]))
	s := shapes[name]
	if s != subcommand || len(args) < 2 {
		return s
	}
	if sub, ok := subcommands[name+" "+string(bytes.ToLower(args[1]))]; ok {
		return sub
	}
	return none
}

// positions calls each with the positions of the names that a command has. The first is that of its name; ok is false if a
// number of names is none.
func (s shape) positions(args [][]byte, each func(i int)) (ok bool) {
	from, to, step := 1, len(args), 1
	switch s {
	case first, listed:
		to = 2
	case second:
		from, to = 2, 3
	case both:
		to = 3
	case all, subscribes:
	case fromSecond:
		from = 2
	case pairs:
		step = 2
	case counted, stored, script:
		at := 1
		if s != counted {
			at = 2
		}
		if len(args) <= at {
			return true // Redis says what is missing
		}
		n, err := strconv.Atoi(string(args[at]))
		if err != nil || n < 0 || n > len(args)-at-1 {
			return false
		}
		from, to = at+1, at+1+n
		if s == stored {
			each(1)
		}
	default:
		return true
	}
	for i := from; i < min(to, len(args)); i += step {
		each(i)
	}
	return true
}
