//! What the service is told about its store: ours above envoyproxy/ratelimit's, what is wrong, what has no effect, and no secret shown.

use std::path::PathBuf;
use std::time::Duration;

use sluicegate_server::settings::{RedisServer, RedisSettings, Settings, Store, Vars};

/// Names and texts.
type Told<'a> = &'a [(&'a str, &'a str)];

fn told(vars: &[(&str, &str)]) -> (Settings, Vec<String>) {
    Settings::read(&Vars::new(vars.iter().copied())).expect("all of it is right")
}

fn redis(vars: &[(&str, &str)]) -> RedisSettings {
    let (settings, warnings) = told(vars);
    assert_eq!(warnings, Vec::<String>::new());
    match settings.store {
        Store::Redis(redis) => *redis,
        Store::Memory => panic!("it is memory"),
    }
}

fn wrong(vars: &[(&str, &str)]) -> String {
    let read = Settings::read(&Vars::new(vars.iter().copied()));
    read.expect_err("something is wrong").to_string()
}

/// The names that are warned of.
fn unused(vars: &[(&str, &str)]) -> Vec<String> {
    let (_, warnings) = told(vars);
    let all = warnings.iter().map(|told| {
        assert!(told.contains(" is set and has no effect: "), "{told}");
        told.split(' ').next().unwrap_or_default().to_owned()
    });
    all.collect()
}

fn who(server: &RedisServer) -> (Option<&str>, Option<&str>) {
    (
        server.options.username.as_deref(),
        server.options.password.as_ref().map(|secret| secret.reveal()),
    )
}

#[test]
fn without_a_word_it_is_memory() {
    for vars in [&[][..], &[("SLUICEGATE_STORE", "memory")], &[("SLUICEGATE_STORE", "")]] {
        let (settings, warnings) = told(vars);
        assert_eq!((settings.store, warnings.len()), (Store::Memory, 0), "{vars:?}");
    }
    // Its default address is a proxy's socket, which exists nowhere else.
    let both = [("BACKEND_TYPE", "redis"), ("SLUICEGATE_STORE", "memory")];
    assert_eq!(unused(&both), ["BACKEND_TYPE"]);
}

#[test]
fn an_empty_address_is_a_warning() {
    let empty = [("REDIS_AUTH", ""), ("REDIS_URL", "")];
    let read = |vars: &[(&str, &str)]| Settings::read(&Vars::new(vars.iter().copied())).unwrap();
    let (settings, warnings) = read(&empty);
    assert_eq!((settings.store, warnings.len()), (Store::Memory, 1));
    assert!(warnings[0].starts_with("REDIS_AUTH, REDIS_URL: empty"), "{warnings:?}");
    assert!(warnings[0].contains("each process counts by itself"), "{warnings:?}");
    for store in ["memory", "redis://h"] {
        let (_, warnings) = read(&[empty[0], empty[1], ("SLUICEGATE_STORE", store)]);
        assert_eq!(warnings, [] as [&str; 0]);
    }
}

#[test]
fn the_variable_that_selects_tls_is_known_to_its_errors() {
    let switch = |vars: &[(&str, &str)]| redis(vars).server.options.tls.switch;
    assert_eq!(switch(&[("REDIS_URL", "h:1"), ("REDIS_TLS", "true")]), Some("REDIS_TLS"));
    assert_eq!(switch(&[("REDIS_URL", "redis://h:1")]), Some("REDIS_TLS"));
    assert_eq!(switch(&[("REDIS_URL", "rediss://h:1")]), None);
    assert_eq!(switch(&[("SLUICEGATE_STORE", "rediss://h:1")]), None);
}

#[test]
fn ours_is_one_text() {
    let store = redis(&[("SLUICEGATE_STORE", "redis://me:se%40cret@h:1/2")]);
    assert_eq!(store.server.address.to_string(), "redis://h:1/2");
    assert_eq!(store.server.source, "SLUICEGATE_STORE");
    assert_eq!(who(&store.server), (Some("me"), Some("se@cret")));
    let options = &store.server.options;
    assert_eq!((options.timeout, options.wait_replicas), (Duration::from_millis(100), None));
    assert_eq!((store.namespace.as_str(), options.connections), ("sg", 2));
    assert!(!store.server.address.is_tls());
    assert_eq!((store.compat, store.per_second), (None, None));

    let all = redis(&[
        ("SLUICEGATE_STORE", "rediss-cluster://me@a:1,b:2"),
        ("SLUICEGATE_STORE_TIMEOUT", "5ms"),
        ("SLUICEGATE_STORE_CONNECTIONS", "4"),
        ("SLUICEGATE_STORE_NAMESPACE", "prod:sg"),
        ("SLUICEGATE_STORE_PASSWORD_FILE", "/run/secrets/redis"),
        ("SLUICEGATE_STORE_CA", "ca.pem"),
        ("SLUICEGATE_STORE_CERT", "cert.pem"),
        ("SLUICEGATE_STORE_KEY", "key.pem"),
        ("SLUICEGATE_STORE_WAIT_REPLICAS", "1"),
    ]);
    assert_eq!(all.server.address.to_string(), "rediss-cluster://a:1,b:2");
    assert_eq!(who(&all.server), (Some("me"), None));
    assert!(all.server.address.is_tls());
    let options = all.server.options;
    assert_eq!(options.password_file, Some(PathBuf::from("/run/secrets/redis")));
    assert_eq!(options.tls.ca, Some(PathBuf::from("ca.pem")));
    assert_eq!(options.tls.client_cert, Some(PathBuf::from("cert.pem")));
    assert_eq!(options.tls.client_key, Some(PathBuf::from("key.pem")));
    assert_eq!(options.timeout, Duration::from_millis(5));
    assert_eq!(options.wait_replicas, Some((1, options.timeout / 4)));
    assert_eq!((all.namespace.as_str(), options.connections), ("prod:sg", 4));
}

#[test]
fn a_flag_stands_above_our_variable_and_that_above_theirs() {
    let theirs = ("REDIS_URL", "theirs:1");
    assert_eq!(redis(&[theirs]).server.source, "REDIS_URL");
    let ours = ("SLUICEGATE_STORE", "redis://ours:2");
    let both = redis(&[theirs, ours, ("REDIS_AUTH", "pass"), ("REDIS_POOL_SIZE", "7")]);
    assert_eq!(both.server.address.to_string(), "redis://ours:2");
    // What ours does not say, theirs does.
    assert_eq!((who(&both.server), both.server.options.connections), ((None, Some("pass")), 7));
    let own = [ours, ("REDIS_AUTH", "theirs"), ("SLUICEGATE_STORE_PASSWORD", "ours")];
    assert_eq!(who(&redis(&own).server), (None, Some("ours")));
    let inside = [("SLUICEGATE_STORE", "redis://:inside@h"), ("REDIS_AUTH", "u:theirs")];
    assert_eq!(who(&redis(&inside).server), (None, Some("inside")));

    let mut vars = Vars::new([theirs, ours]);
    vars.set_flag("--store", "memory");
    let (settings, warnings) = Settings::read(&vars).expect("it is right");
    assert_eq!(settings.store, Store::Memory);
    assert!(warnings[0].starts_with("REDIS_URL is set and has no effect"), "{warnings:?}");
    vars.set_flag("--store", "flag:3");
    let told = Settings::read(&vars).expect_err("it has no scheme").to_string();
    assert!(told.starts_with("--store: must begin with `redis://`"), "{told}");
    assert!(told.ends_with("got `flag:3`; or write `memory`"), "{told}");
}

#[test]
fn their_addresses_mean_what_they_mean_there() {
    let cluster = ("REDIS_TYPE", "CLUSTER");
    let sentinel = ("REDIS_TYPE", "sentinel");
    let (tcp, unix) = (("REDIS_SOCKET_TYPE", "tcp"), ("REDIS_SOCKET_TYPE", "unix"));
    let tls = ("REDIS_TLS", "true");
    let table: &[(&str, Told<'_>, &str)] = &[
        ("redis:6379", &[tcp], "redis://redis:6379"),
        (":6379", &[tcp], "redis://127.0.0.1:6379"),
        ("redis:6379", &[], "redis://redis:6379"),
        ("redis:6379", &[tcp, tls], "rediss://redis:6379"),
        ("redis://redis:6379/3", &[tcp], "redis://redis:6379/3"),
        ("redis://redis:6379?db=3", &[tcp, tls], "rediss://redis:6379/3"),
        ("/run/redis.sock", &[unix], "unix:///run/redis.sock"),
        ("/run/redis.sock", &[], "unix:///run/redis.sock"),
        ("a:1, b:2", &[cluster, tcp], "redis-cluster://a:1,b:2"),
        ("redis://a:1,redis://b:2", &[cluster, tls], "rediss-cluster://a:1,b:2"),
        ("mymaster,a:1,b:2", &[sentinel], "redis-sentinel://a:1,b:2/mymaster"),
        ("mymaster,a:1", &[sentinel, tls], "rediss-sentinel://a:1/mymaster"),
    ];
    for (url, more, address) in table {
        let vars: Vec<_> = [("REDIS_URL", *url)].into_iter().chain(more.iter().copied()).collect();
        let server = redis(&vars).server;
        assert_eq!(server.address.to_string(), *address, "{vars:?}");
        assert_eq!(server.address.is_tls(), address.starts_with("rediss"), "{vars:?}");
    }
    let url = ("REDIS_URL", "redis://in:side@h");
    assert_eq!(who(&redis(&[url]).server), (Some("in"), Some("side")));
    assert_eq!(who(&redis(&[url, ("REDIS_AUTH", "u:p")]).server), (Some("u"), Some("p")));
    // There too, each by itself.
    assert_eq!(who(&redis(&[url, ("REDIS_AUTH", "p")]).server), (Some("in"), Some("p")));
    let both = [("REDIS_URL", "redis://u:p@a:1,b:2"), cluster];
    assert_eq!(who(&redis(&both).server), (Some("u"), Some("p")));
    let sentinels =
        redis(&[("REDIS_URL", "m,a:1"), sentinel, ("REDIS_SENTINEL_AUTH", "s:t")]).server;
    assert_eq!(sentinels.options.sentinel_username.as_deref(), Some("s"));
    assert_eq!(who(&sentinels), (None, None));
}

#[test]
fn keys_of_envoyproxy_ratelimit_with_all_that_belongs_to_them() {
    let compat = [("REDIS_URL", "h:1"), ("SLUICEGATE_COMPAT", "envoy")];
    let keys = redis(&compat).compat.expect("it is on");
    assert_eq!((&*keys.prefix, keys.jitter_max_s), ("", 300));
    assert!(!keys.stop_increment_when_over && keys.local_cache_bytes == 0);

    let all = [
        ("REDIS_URL", "h:1"),
        ("SLUICEGATE_COMPAT", "envoy"),
        ("CACHE_KEY_PREFIX", "prod_"),
        ("EXPIRATION_JITTER_MAX_SECONDS", "0"),
        ("STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", "true"),
        ("LOCAL_CACHE_SIZE_IN_BYTES", "1000000"),
        ("REDIS_HEALTH_CHECK_ACTIVE_CONNECTION", "true"),
        ("REDIS_PERSECOND", "true"),
        ("REDIS_PERSECOND_URL", "m,a:1"),
        ("REDIS_PERSECOND_TYPE", "SENTINEL"),
        ("REDIS_PERSECOND_SOCKET_TYPE", "tcp"),
        ("REDIS_PERSECOND_AUTH", "u:p"),
        ("REDIS_PERSECOND_SENTINEL_AUTH", "q"),
        ("REDIS_PERSECOND_TLS", "true"),
        ("REDIS_PERSECOND_TIMEOUT", "2s"),
        ("REDIS_PERSECOND_POOL_SIZE", "3"),
        ("REDIS_TLS_CACERT", "ca.pem"),
    ];
    let store = redis(&all);
    let keys = store.compat.expect("it is on");
    assert_eq!((&*keys.prefix, keys.jitter_max_s), ("prod_", 0));
    assert!(keys.stop_increment_when_over && keys.local_cache_bytes == 1_000_000);
    assert!(store.health_needs_connection && !store.server.address.is_tls());
    let second = store.per_second.expect("there is one");
    assert_eq!(second.address.to_string(), "rediss-sentinel://a:1/m");
    assert_eq!(who(&second), (Some("u"), Some("p")));
    assert_eq!(second.options.sentinel_password.as_ref().map(|secret| secret.reveal()), Some("q"));
    assert_eq!(
        (second.options.connect_timeout, second.options.connections),
        (Duration::from_secs(2), 3)
    );
    // Both pools have the same files.
    assert_eq!(second.options.tls.ca, Some(PathBuf::from("ca.pem")));
}

#[test]
fn what_has_no_effect_is_told_as_things_stand() {
    let about_keys = [
        ("CACHE_KEY_PREFIX", "x"),
        ("EXPIRATION_JITTER_MAX_SECONDS", "1"),
        ("LOCAL_CACHE_SIZE_IN_BYTES", "1"),
        ("REDIS_PERSECOND", "true"),
        ("REDIS_PERSECOND_URL", "h:2"),
        ("STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", "true"),
    ];
    let names: Vec<&str> = about_keys.iter().map(|(name, _)| *name).collect();
    let with = |more: &[(&'static str, &'static str)]| [&about_keys[..], more].concat();
    assert_eq!(unused(&with(&[("SLUICEGATE_STORE", "memory")])), names);
    assert_eq!(unused(&with(&[("REDIS_URL", "h:1")])), names);
    let all = with(&[("REDIS_URL", "h:1"), ("SLUICEGATE_COMPAT", "envoy")]);
    assert_eq!(unused(&all), Vec::<String>::new());

    let on_redis = |more: &[(&'static str, &'static str)]| {
        unused(&[&[("REDIS_URL", "h:1"), ("SLUICEGATE_COMPAT", "envoy")], more].concat())
    };
    for (name, text) in [
        ("REDIS_PERSECOND_URL", "h:2"),
        ("REDIS_TLS_CACERT", "ca.pem"),
        ("SLUICEGATE_STORE_CA", "ca.pem"),
        ("REDIS_SENTINEL_AUTH", "x"),
        ("REDIS_PIPELINE_WINDOW", "150us"),
        ("REDIS_PIPELINE_LIMIT", "8"),
        ("REDIS_CLUSTER_PIPELINE_PARALLELISM", "0"),
        ("REDIS_POOL_ON_EMPTY_BEHAVIOR", "CREATE"),
        ("REDIS_STARTUP_INITIAL_INTERVAL", "1s"),
        ("REDIS_STARTUP_MAX_ELAPSED_TIME", "1m"),
        ("MEMCACHE_HOST_PORT", "h:3"),
    ] {
        assert_eq!(on_redis(&[(name, text)]), [name]);
    }
    for fine in [
        ("REDIS_PERSECOND", "false"),
        ("REDIS_TLS", "false"),
        ("REDIS_PIPELINE_WINDOW", "0"),
        ("REDIS_POOL_ON_EMPTY_BEHAVIOR", "wait"),
        ("REDIS_STARTUP_MAX_ELAPSED_TIME", "0"),
        ("BACKEND_TYPE", "redis"),
    ] {
        assert_eq!(on_redis(&[fine]), Vec::<String>::new(), "{fine:?}");
    }
    // Ours says that there is no TLS; who relied on theirs has to know.
    let plain = [("SLUICEGATE_STORE", "redis://h"), ("REDIS_TLS", "true")];
    assert_eq!(unused(&plain), ["REDIS_TLS"]);
    let lonely = [("SLUICEGATE_STORE_PASSWORD", "x"), ("SLUICEGATE_COMPAT", "envoy")];
    let names = ["SLUICEGATE_COMPAT", "SLUICEGATE_STORE_PASSWORD"];
    assert_eq!(unused(&[&lonely[..], &[("SLUICEGATE_STORE", "memory")]].concat()), names);
    assert_eq!(unused(&[("SLUICEGATE_STORE_TIMEOUT", "1s")]), ["SLUICEGATE_STORE_TIMEOUT"]);
    let error = wrong(&lonely);
    assert!(error.starts_with(&format!("{}: set for a Redis", names.join(", "))), "{error}");
}

#[test]
fn what_is_wrong_is_told_with_place_value_and_remedy() {
    let table: &[(Told<'_>, &str)] = &[
        (
            &[("BACKEND_TYPE", "memcache")],
            "BACKEND_TYPE: memcached is not supported, got `memcache`; ",
        ),
        (
            &[("BACKEND_TYPE", "etcd")],
            "BACKEND_TYPE: must be one of `redis`, `memcache`, got `etcd`",
        ),
        (&[("SLUICEGATE_STORE", "h:1")], "such as `redis://127.0.0.1:6379`, got `h:1`"),
        (
            &[("REDIS_URL", "h:1"), ("SLUICEGATE_STORE_TIMEOUT", "0")],
            "SLUICEGATE_STORE_TIMEOUT: must be a time from `1ms` to `60s`, got `0`",
        ),
        (
            &[("REDIS_URL", "h:1"), ("REDIS_TIMEOUT", "5m")],
            "REDIS_TIMEOUT: must be a time from `1ms` to `60s`, got `5m`",
        ),
        (
            &[("REDIS_URL", "h:1"), ("REDIS_POOL_SIZE", "0")],
            "REDIS_POOL_SIZE: must be a whole number from 1 to 1024, got `0`",
        ),
        (
            &[("REDIS_URL", "h:1"), ("SLUICEGATE_STORE_NAMESPACE", "{a}")],
            "at most 64 letters, digits and `-`, `_`, `.`, `:`, got `{a}`",
        ),
        (
            &[("REDIS_URL", "h:1"), ("SLUICEGATE_COMPAT", "kong")],
            "SLUICEGATE_COMPAT: must be one of `none`, `envoy`, got `kong`",
        ),
        (
            &[("REDIS_URL", "h:1"), ("REDIS_TYPE", "RING")],
            "REDIS_TYPE: must be one of `single`, `sentinel`, `cluster`, got `RING`",
        ),
        (
            &[("REDIS_URL", "h:1"), ("REDIS_TYPE", "SENTINEL")],
            "REDIS_URL: must be the name of the master and its Sentinels, such as",
        ),
        (
            &[("REDIS_URL", "h:1"), ("REDIS_SOCKET_TYPE", "unix")],
            "or REDIS_SOCKET_TYPE must be `tcp`, got `h:1`",
        ),
        (
            &[("REDIS_URL", "h:1"), ("SLUICEGATE_COMPAT", "envoy"), ("REDIS_PERSECOND", "true")],
            "REDIS_PERSECOND: the Redis for limits per second has no URL; set REDIS_PERSECOND_URL too",
        ),
        (
            &[("REDIS_URL", "h:1"), ("SLUICEGATE_STORE_CERT", "a")],
            "set both SLUICEGATE_STORE_CERT and SLUICEGATE_STORE_KEY",
        ),
        (
            &[
                ("REDIS_URL", "h:1"),
                ("SLUICEGATE_STORE_PASSWORD", "a"),
                ("SLUICEGATE_STORE_PASSWORD_FILE", "b"),
            ],
            "set only one",
        ),
    ];
    for (vars, part) in table {
        let told = wrong(vars);
        assert!(told.contains(part) && told.lines().count() == 1, "{vars:?}: {told}");
    }
    // With another store chosen it is no more than a variable without effect.
    let chosen = [("BACKEND_TYPE", "memcache"), ("SLUICEGATE_STORE", "redis://h")];
    assert_eq!(unused(&chosen), ["BACKEND_TYPE"]);
}

#[test]
fn no_secret_is_shown() {
    let vars = [
        ("REDIS_URL", "m,redis://u:swordfish@a:1"),
        ("REDIS_TYPE", "SENTINEL"),
        ("REDIS_SENTINEL_AUTH", "s:swordfish"),
        ("SLUICEGATE_COMPAT", "envoy"),
        ("REDIS_PERSECOND", "true"),
        ("REDIS_PERSECOND_URL", "redis://:swordfish@b:2"),
    ];
    let (settings, _) = told(&vars);
    let json = settings.to_json();
    let shown = format!("{json} {settings:?}");
    assert!(!shown.contains("swordfish"), "{shown}");
    let store = &json["store"];
    assert_eq!(store["server"]["address"], "redis-sentinel://a:1/m");
    assert_eq!(store["server"]["username"], "u");
    assert_eq!(store["server"]["sentinel_password"], "hidden");
    assert_eq!(store["per_second"]["password"], "hidden");
    assert_eq!(store["compat"]["keys"], "envoy");
    assert_eq!(told(&[]).0.to_json()["store"], "memory");
    for text in [
        "redis://u:swordfish@",
        "x://u:swordfish@h",
        "redis://u:a/swordfish@h",
        "redis://u:swordfish/a@h",
        "redis://u:swordfish?a@h",
        "redis://u:a?swordfish@h",
        "redis-cluster://u:swordfish@h,u:swordfish@i",
        "redis://h?password=swordfish&x",
    ] {
        let told = wrong(&[("SLUICEGATE_STORE", text)]);
        assert!(!told.contains("swordfish"), "{told}");
    }
}
