//! What the service is told by flags and the environment: which stands above which, what is wrong, what has no effect.

use std::path::PathBuf;
use std::time::Duration;

use sluicegate_server::logs::{Format, Level};
use sluicegate_server::settings::{GrpcAddress, RulesSettings, Settings, Vars};

fn read(vars: &[(&str, &str)]) -> Settings {
    let read = Settings::read(&Vars::new(vars.iter().copied()));
    let (settings, warnings) = read.expect("all of it is right");
    assert_eq!(warnings, Vec::<String>::new());
    settings
}

fn wrong(vars: &[(&str, &str)]) -> String {
    let read = Settings::read(&Vars::new(vars.iter().copied()));
    read.expect_err("something is wrong").to_string()
}

#[test]
fn without_a_word_it_listens_to_this_machine_only() {
    let settings = read(&[]);
    assert_eq!(settings.http.to_string(), "127.0.0.1:8080");
    assert_eq!(settings.grpc.to_string(), "127.0.0.1:8081");
    assert_eq!(settings.admin.to_string(), "127.0.0.1:6070");
    assert_eq!(settings.rules.paths, Vec::<PathBuf>::new());
    assert!(!settings.rls.shadow_mode && settings.rls.response_headers.is_none());
}

#[test]
fn a_flag_stands_above_our_variable_and_that_above_theirs() {
    let mut vars = Vars::new([("HOST", "0.0.0.0"), ("PORT", "1")]);
    let http = |vars: &Vars| Settings::read(vars).unwrap().0.http.to_string();
    assert_eq!(http(&vars), "0.0.0.0:1");
    vars = Vars::new([("HOST", "0.0.0.0"), ("SLUICEGATE_HTTP", "127.0.0.1:2")]);
    assert_eq!(http(&vars), "127.0.0.1:2");
    vars.set_flag("--http", "127.0.0.1:3");
    assert_eq!(http(&vars), "127.0.0.1:3");
}

#[test]
fn variables_of_envoyproxy_ratelimit_mean_what_they_mean_there() {
    let settings = read(&[
        ("GRPC_UDS", "/run/ratelimit.sock"),
        ("GRPC_MAX_CONNECTION_AGE", "1h30m"),
        ("RUNTIME_ROOT", "/data"),
        ("RUNTIME_SUBDIRECTORY", "ratelimit"),
        ("MERGE_DOMAIN_CONFIG", "1"),
        ("RUNTIME_IGNOREDOTFILES", "false"),
        ("RUNTIME_WATCH_ROOT", "false"),
        ("LIMIT_RESPONSE_HEADERS_ENABLED", "true"),
        ("LIMIT_RESET_HEADER", "X-Reset"),
        ("NEAR_LIMIT_RATIO", "0.5"),
        ("QUOTA_MODE", "T"),
        ("RESPONSE_DYNAMIC_METADATA", "True"),
        ("LOG_LEVEL", "DEBUG"),
        ("LOG_FORMAT", "json"),
        ("USE_STATSD", "false"),
        ("FORCE_START_WITHOUT_INITIAL_CONFIG", "true"),
        ("HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", "true"),
    ]);
    assert_eq!(settings.grpc, GrpcAddress::Unix("/run/ratelimit.sock".into()));
    assert_eq!(settings.connection_age.0, Duration::from_secs(5_400));
    assert_eq!(settings.rules.paths, [PathBuf::from("/data/ratelimit/config")]);
    assert!(settings.rules.options.merge_domains && !settings.rules.files.ignore_dot_files);
    let headers = settings.rls.response_headers.unwrap();
    assert_eq!(headers.limit, "RateLimit-Limit");
    assert_eq!(headers.reset, "X-Reset");
    assert!(settings.rls.quota_mode && settings.rls.dynamic_metadata);
    assert_eq!((settings.log.level, settings.log.format), (Level::Debug, Format::Json));
    assert!(settings.start_without_rules && settings.needs_domain);
    assert_eq!(settings.near_limit_ratio, 0.5);
}

#[test]
fn what_is_set_and_has_no_effect_is_told() {
    let vars = Vars::new([
        ("REDIS_POOL_SIZE", "10"),
        ("SLUICEGATE_STORE", "memory"),
        ("BACKEND_TYPE", "redis"),
        ("EXTRA_TAGS", "a:b"),
        ("SLUICEGATE_RULES", "/etc/sluicegate"),
        ("CONFIG_TYPE", "GRPC_XDS_SOTW"),
        ("LOCAL_CACHE_SIZE_IN_BYTES", "1000"),
        ("GRPC_VERBOSITY", "none of ours"),
    ]);
    let (_, warnings) = Settings::read(&vars).unwrap();
    let names: Vec<&str> = warnings.iter().filter_map(|told| told.split(' ').next()).collect();
    assert_eq!(
        names,
        [
            "BACKEND_TYPE",
            "CONFIG_TYPE",
            "EXTRA_TAGS",
            "LOCAL_CACHE_SIZE_IN_BYTES",
            "REDIS_POOL_SIZE",
        ]
    );
    assert!(warnings[4].contains("each process counts by itself"), "{}", warnings[4]);
}

#[test]
fn what_would_limit_nothing_silently_is_refused() {
    let error = wrong(&[("CONFIG_TYPE", "XDS")]);
    let beginning = "CONFIG_TYPE: must be one of `FILE`, `GRPC_XDS_SOTW`, got `XDS`";
    assert!(error.starts_with(beginning), "{error}");
    let xds = [("CONFIG_TYPE", "GRPC_XDS_SOTW"), ("RUNTIME_ROOT", "/data")];
    let rules = read(&xds).rules;
    assert!(rules.xds.is_some() && rules.paths.is_empty(), "{rules:?}");
    let own = Vars::new([xds[0], ("SLUICEGATE_RULES", "/etc/rules")]);
    assert!(Settings::read(&own).unwrap().0.rules.xds.is_none(), "ours has precedence");
    let files = read(&[("CONFIG_TYPE", "file")]).rules.paths;
    assert_eq!(files, [PathBuf::from("/srv/runtime_data/current/config")], "not the example");
    let error = wrong(&[("BACKEND_TYPE", "redis"), ("REDIS_POOL_SIZE", "5")]);
    assert!(error.starts_with("BACKEND_TYPE: `redis` needs the address of a Redis"), "{error}");
    let error =
        wrong(&[("REDIS_AUTH", "secret"), ("REDIS_SOCKET_TYPE", "tcp"), ("REDIS_TLS", "true")]);
    let names =
        "REDIS_AUTH, REDIS_SOCKET_TYPE, REDIS_TLS: set for a Redis, whose address is missing";
    assert!(error.starts_with(names) && error.contains("set REDIS_URL too"), "{error}");
    assert!(!error.contains("secret"), "{error}");
    read(&[("REDIS_TLS", "false"), ("REDIS_PERSECOND", "false")]);
    let error = wrong(&[("SLUICEGATE_SNAPSHOT_EVERY", "5m")]);
    assert!(error.contains("set SLUICEGATE_SNAPSHOT too"), "{error}");
}

#[test]
fn service_links_are_ignored_whatever_else_is_set() {
    let links = [
        ("SLUICEGATE_SERVICE_HOST", "10.0.0.7"),
        ("SLUICEGATE_SERVICE_PORT", "8081"),
        ("SLUICEGATE_SERVICE_PORT_GRPC", "8081"),
        ("SLUICEGATE_PORT", "tcp://10.0.0.7:8081"),
        ("SLUICEGATE_PORT_8081_TCP", "tcp://10.0.0.7:8081"),
        ("SLUICEGATE_PORT_8081_TCP_PROTO", "tcp"),
        ("SLUICEGATE_PORT_8081_TCP_PORT", "8081"),
        ("SLUICEGATE_PORT_8081_TCP_ADDR", "10.0.0.7"),
        ("SLUICEGATE_ADMIN_SERVICE_HOST", "10.0.0.8"),
        ("SLUICEGATE_ADMIN_PORT", "tcp://10.0.0.8:6070"),
        ("GRPC_PORT", "tcp://10.0.0.9:8081"),
        ("REDIS_SERVICE_HOST", "10.0.0.10"),
        ("REDIS_PORT", "tcp://10.0.0.10:6379"),
        ("REDIS_PORT_6379_TCP_ADDR", "10.0.0.10"),
    ];
    let settings = read(&links);
    assert_eq!(settings.grpc.to_string(), "127.0.0.1:8081");
    let with_store: Vec<_> =
        links.into_iter().chain([("SLUICEGATE_STORE", "redis://redis:6379")]).collect();
    read(&with_store);
    let error = wrong(&[("SLUICEGATE_PORT", "8081"), ("SLUICEGATE_RULE", "a.yaml")]);
    let addresses = "SLUICEGATE_PORT: unknown setting; set SLUICEGATE_HTTP, SLUICEGATE_GRPC or SLUICEGATE_ADMIN with an address and a port";
    assert!(error.contains(addresses), "{error}");
    assert!(error.contains("did you mean `SLUICEGATE_RULES`?"), "{error}");
}

#[test]
fn an_unknown_variable_has_a_suggestion_that_fits() {
    let table = [
        (
            "SLUICEGATE_GRPC_PORT",
            "set SLUICEGATE_GRPC with an address and a port, such as `127.0.0.1:8081`",
        ),
        (
            "SLUICEGATE_ADMIN_ADDR",
            "set SLUICEGATE_ADMIN with an address and a port, such as `127.0.0.1:6070`",
        ),
        ("SLUICEGATE_SHADOW_MODE", "did you mean `SLUICEGATE_SHADOW`?"),
        ("SLUICEGATE_SHADOWMODE", "did you mean `SLUICEGATE_SHADOW`?"),
        ("SLUICEGATE_REDIS_URL", "did you mean `SLUICEGATE_STORE`?"),
        ("SLUICEGATE_LISTEN", "set SLUICEGATE_HTTP, SLUICEGATE_GRPC or SLUICEGATE_ADMIN"),
        ("SLUICEGATE_STROE", "did you mean `SLUICEGATE_STORE`?"),
        // Similar to short names only by the prefix.
        ("SLUICEGATE_FOO", "remove it, or see `sluicegate serve --help`"),
    ];
    for (name, hint) in table {
        let error = wrong(&[(name, "8081")]);
        assert!(error.starts_with(&format!("{name}: unknown setting; {hint}")), "{error}");
        let error = RulesSettings::read(&Vars::new([(name, "8081")]), &[]).unwrap_err();
        assert!(error.to_string().contains(hint), "`check` and `explain`: {error}");
    }
}

/// The warnings of valid settings.
fn warnings(vars: &[(&str, &str)]) -> Vec<String> {
    Settings::read(&Vars::new(vars.iter().copied())).expect("all of it is right").1
}

#[test]
fn misspelt_variables_are_reported() {
    let harmless = [
        ("GRPC_PROT", "GRPC_PORT"),
        ("LIMIT_RESPONSE_HEADER_ENABLED", "LIMIT_RESPONSE_HEADERS_ENABLED"),
        ("USE_PROMETEUS", "USE_PROMETHEUS"),
        ("REDIS_POOLSIZE", "REDIS_POOL_SIZE"),
        ("LOGLEVEL", "LOG_LEVEL"),
    ];
    for (name, meant) in harmless {
        let warning = format!("{name} is set and has no effect: did you mean `{meant}`?");
        assert_eq!(warnings(&[(name, "1")]), [warning]);
    }
    assert!(warnings(&[("GRPC_PROT", "1"), ("GRPC_PORT", "2")]).is_empty(), "it is set");
    let refused = [
        ("REDIS_ULR", "REDIS_URL", "SLUICEGATE_STORE", "memory"),
        ("REDISURL", "REDIS_URL", "SLUICEGATE_STORE", "memory"),
        ("BACKENDTYPE", "BACKEND_TYPE", "SLUICEGATE_STORE", "memory"),
        ("RUNTIME_ROT", "RUNTIME_ROOT", "SLUICEGATE_RULES", "/etc/rules"),
        ("RUNTIME_SUBDIR", "RUNTIME_SUBDIRECTORY", "SLUICEGATE_RULES", "/etc/rules"),
        ("CONFIG_TYP", "CONFIG_TYPE", "SLUICEGATE_RULES", "/etc/rules"),
        ("SHADOWMODE", "SHADOW_MODE", "SLUICEGATE_SHADOW", "false"),
    ];
    for (name, meant, own, value) in refused {
        let error = wrong(&[(name, "secret")]);
        let beginning = format!("{name}: has no effect; did you mean `{meant}`?");
        assert!(error.starts_with(&beginning) && !error.contains("secret"), "{error}");
        assert_eq!(warnings(&[(name, "secret"), (own, value)]).len(), 1, "{name}");
    }
    let error = wrong(&[("REDIS_AUTH", "x"), ("BACKEND_TYPE", "redis"), ("REDIS_ULR", "h:1")]);
    assert!(error.starts_with("REDIS_ULR: "), "{error}");
    let error = wrong(&[("REDIS_AUTH", "x"), ("REDIS_ULR", "h:1")]);
    assert!(error.starts_with("REDIS_ULR: ") && error.lines().count() == 1, "{error}");
}

#[test]
fn check_and_explain_refuse_misspelt_variables_about_rules() {
    let vars = Vars::new([("RUNTIME_SUBDIR", "ratelimit"), ("REDIS_ULR", "h:1")]);
    let error = RulesSettings::read(&vars, &[]).unwrap_err().to_string();
    assert!(error.starts_with("RUNTIME_SUBDIR: ") && error.lines().count() == 1, "{error}");
    RulesSettings::read(&vars, &["rules.yaml".into()]).expect("the path is given");
}

#[test]
fn every_variable_of_the_guide_is_recognized_without_its_underscores() {
    let guide = include_str!("../../../docs/guide/service.md");
    let (_, table) = guide.split_once("| flag | variable | envoyproxy/ratelimit's |").unwrap();
    let (table, _) = table.split_once("\n\n").unwrap();
    let cells = table.lines().filter_map(|row| row.split('|').nth(3));
    let words = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    let names = words.filter_map(|word| word.split('=').next());
    let names: Vec<&str> =
        names.filter(|name| name.contains('_') && !name.starts_with("OTEL_")).collect();
    for name in &names {
        let read = Settings::read(&Vars::new([(name.replace('_', ""), "x")]));
        let report = read.map_or_else(|error| error.to_string(), |(_, all)| all.concat());
        assert!(report.contains(&format!("did you mean `{name}`?")), "{name}: {report}");
    }
    assert!(names.len() > 60, "{names:?}");
}

#[test]
fn variables_of_other_software_are_not_misspelt_ones() {
    let names = "PATH HOME HOSTNAME PWD OLDPWD SHELL SHLVL TERM USER LOGNAME LANG LC_ALL TZ TMPDIR \
                 EDITOR PAGER MAIL DISPLAY HOSTS POST PORTS PROT HTTP_PORT HTTPS_PORT HTTP_PROXY \
                 HTTPS_PROXY NO_PROXY http_proxy GRPC_TRACE GRPC_VERBOSITY GRPC_DNS_RESOLVER \
                 REDIS_HOST REDIS_PORT REDIS_PASSWORD REDIS_USER REDIS_DB REDIS_SERVICE_NAME \
                 DEBUG RUST_LOG RUST_BACKTRACE CARGO_HOME NODE_NAME NODE_ENV POD_NAME POD_IP \
                 POD_NAMESPACE LOG_FILE LOG_DIR CONFIG_PATH CONFIG_FILE RUNTIME_DIR \
                 XDG_RUNTIME_DIR SSL_CERT_FILE SSL_CERT_DIR SSH_AUTH_SOCK INVOCATION_ID \
                 JOURNAL_STREAM AWS_REGION GOMAXPROCS GOMEMLIMIT OTEL_SERVICE_NAM \
                 OTEL_EXPORTER_OTLP_ENDPOIN KUBERNETES_PORT KUBERNETES_SERVICE_PORT_HTTPS \
                 STATSD_ADDR DATABASE_URL BACKEND_URL CACHE_DIR MODE SHADOW EXTRA_ARGS \
                 RUNTIME_WATCH_ROOT PROMETHEUS_MAPPER_YAML USE_DOG_STATSD_X XDS_CLIENT_X";
    for name in names.split_ascii_whitespace() {
        let warnings = warnings(&[(name, "1"), ("SLUICEGATE_STORE", "redis://h")]);
        assert!(warnings.iter().all(|one| !one.contains("did you mean")), "{warnings:?}");
    }
}

#[test]
fn loopback_in_a_pod_is_a_warning_unless_it_is_set() {
    let pod = ("KUBERNETES_SERVICE_HOST", "10.96.0.1");
    let found = warnings(&[pod]);
    let expected =
        "the gRPC address `127.0.0.1:8081` cannot be reached by other pods: set GRPC_HOST=0.0.0.0";
    assert!(found.len() == 1 && found[0].starts_with(expected), "{found:?}");
    read(&[pod, ("GRPC_HOST", "0.0.0.0")]);
    read(&[pod, ("SLUICEGATE_GRPC", "127.0.0.1:8081")]);
    read(&[pod, ("GRPC_UDS", "/run/grpc.sock")]);
}

#[test]
fn shadow_mode_is_never_silent() {
    let mut flag = Vars::default();
    flag.set_flag("--shadow", "true");
    let own = Vars::new([("SLUICEGATE_SHADOW", "true"), ("SHADOW_MODE", "false")]);
    let theirs = Vars::new([("SHADOW_MODE", "true")]);
    for (vars, name) in [(flag, "--shadow"), (own, "SLUICEGATE_SHADOW"), (theirs, "SHADOW_MODE")] {
        let (settings, warnings) = Settings::read(&vars).unwrap();
        assert!(settings.rls.shadow_mode, "{name}");
        let [warning] = <[String; 1]>::try_from(warnings).unwrap();
        let beginning = format!("{name}: shadow mode is on, and nothing is enforced");
        assert!(warning.starts_with(&beginning), "{warning}");
        assert!(warning.contains(&format!("remove {name} to enforce the limits")), "{warning}");
    }
    let off = [("SLUICEGATE_SHADOW", "false"), ("SHADOW_MODE", "true")];
    assert!(!read(&off).rls.shadow_mode, "ours has precedence");
}

#[test]
fn an_error_about_the_rules_directory_names_its_variables() {
    let rules = |vars: &[(&str, &str)]| {
        let rules = RulesSettings::read(&Vars::new(vars.iter().copied()), &[]).unwrap();
        rules.with_source("cannot be read".to_owned())
    };
    let vars = [("RUNTIME_ROOT", "/data"), ("RUNTIME_SUBDIRECTORY", "ratelimit")];
    assert_eq!(
        rules(&vars),
        "cannot be read (the path is formed by RUNTIME_ROOT=`/data`; RUNTIME_SUBDIRECTORY=`ratelimit`; \
         RUNTIME_APPDIRECTORY is not set, by default `config`)"
    );
    assert_eq!(rules(&[("SLUICEGATE_RULES", "/data")]), "cannot be read");
}

#[test]
fn options_about_files_are_variables_too() {
    let settings =
        read(&[("SLUICEGATE_MERGE_DOMAINS", "true"), ("SLUICEGATE_INCLUDE_DOT_FILES", "true")]);
    assert!(settings.rules.options.merge_domains && !settings.rules.files.ignore_dot_files);
    let both = [("SLUICEGATE_MERGE_DOMAINS", "false"), ("MERGE_DOMAIN_CONFIG", "true")];
    assert!(!read(&both).rules.options.merge_domains, "ours has precedence");
}

#[test]
fn all_that_is_wrong_is_told_at_once() {
    let told = wrong(&[
        ("PORT", "http"),
        ("SLUICEGATE_GRPC", "localhost"),
        ("SHADOW_MODE", "maybe"),
        ("GRPC_MAX_CONNECTION_AGE", "1 day"),
        ("SLUICEGATE_HEADERS", "all"),
        ("SLUICEGATE_SNAPSHOTS", "/tmp/x"),
    ]);
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(lines.len(), 6, "{told}");
    for part in [
        "PORT: must be a whole number from 0 to 65535, got `http`",
        "SLUICEGATE_GRPC: must be an address and a port, such as `127.0.0.1:8080` or `[::1]:0`, got `localhost`",
        "SHADOW_MODE: must be `true` or `false`, got `maybe`",
        "GRPC_MAX_CONNECTION_AGE: must be a time such as `90s`, `1h30m` or `500ms`, got `1 day`",
        "SLUICEGATE_HEADERS: must be one of `both`, `x-ratelimit`, `ietf`, `none`, got `all`",
        "SLUICEGATE_SNAPSHOTS: unknown setting; did you mean `SLUICEGATE_SNAPSHOT`?",
    ] {
        assert!(lines.contains(&part), "{part}\nis not in\n{told}");
    }
}

#[test]
fn a_flag_that_is_wrong_is_called_by_its_own_name() {
    let mut vars = Vars::default();
    vars.set_flag("--http", "nowhere");
    let told = Settings::read(&vars).unwrap_err().to_string();
    assert!(told.starts_with("--http: must be an address"), "{told}");
}

#[test]
fn operators_need_a_token_where_others_can_reach() {
    let told = wrong(&[("SLUICEGATE_ADMIN", "0.0.0.0:6070")]);
    assert!(told.contains("set SLUICEGATE_ADMIN_TOKEN"), "{told}");
    let settings = read(&[("DEBUG_HOST", "0.0.0.0"), ("SLUICEGATE_ADMIN_TOKEN", "secret")]);
    assert_eq!(settings.admin.to_string(), "0.0.0.0:6070");
    assert!(!format!("{settings:?}").contains("secret"));
}

#[test]
fn tls_is_whole_or_not_at_all() {
    assert!(read(&[("GRPC_SERVER_TLS_CERT", "a"), ("GRPC_SERVER_TLS_KEY", "b")]).tls.is_none());
    let all = [
        ("GRPC_SERVER_USE_TLS", "true"),
        ("GRPC_SERVER_TLS_CERT", "a"),
        ("GRPC_SERVER_TLS_KEY", "b"),
    ];
    assert_eq!(read(&all).tls.unwrap().certificates[0].cert, PathBuf::from("a"));
    assert!(wrong(&[("GRPC_SERVER_USE_TLS", "true")]).contains("needs a certificate and its key"));
    assert!(wrong(&[("SLUICEGATE_TLS_CERT", "a")]).contains("needs a certificate and its key"));
    let lonely = [
        ("SLUICEGATE_TLS_CERT", "a"),
        ("SLUICEGATE_TLS_KEY", "b"),
        ("SLUICEGATE_CLIENT_SAN", "envoy"),
    ];
    assert!(wrong(&lonely).contains("set SLUICEGATE_CLIENT_CA"));
}

#[test]
fn secrets_are_hidden_in_what_is_shown() {
    let settings = read(&[
        ("SLUICEGATE_TRACES", "http://collector:4318"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=swordfish"),
        ("SLUICEGATE_ADMIN_TOKEN", "open sesame"),
    ]);
    let shown = format!("{} {settings:?}", settings.to_json());
    assert!(!shown.contains("swordfish") && !shown.contains("sesame"), "{shown}");
    assert!(shown.contains("collector:4318"), "{shown}");
}

#[test]
fn clients_of_redis_ask_only_where_they_are_told_to() {
    assert_eq!(read(&[]).resp, None);
    let settings = read(&[("SLUICEGATE_RESP", "127.0.0.1:6380")]);
    assert_eq!(settings.resp.map(|resp| resp.to_string()).as_deref(), Some("127.0.0.1:6380"));
    let open = [("SLUICEGATE_RESP", "0.0.0.0:6380"), ("SLUICEGATE_RESP_PASSWORD", "sesame")];
    let shown = read(&open).to_json();
    assert_eq!(
        (&shown["resp"], &shown["resp_password"]),
        (&"0.0.0.0:6380".into(), &"hidden".into())
    );
    let warned = |vars: &[(&str, &str)]| {
        let (_, warnings) = Settings::read(&Vars::new(vars.iter().copied())).unwrap();
        warnings.join("\n")
    };
    assert!(warned(&open[..1]).contains("is reachable from other hosts and has no password"));
    assert!(warned(&open[1..]).contains("SLUICEGATE_RESP_PASSWORD is set and has no effect"));
    assert_eq!(
        wrong(&[("SLUICEGATE_RESP", "6380")]),
        "SLUICEGATE_RESP: must be an address and a port, such as `127.0.0.1:8080` or `[::1]:0`, got `6380`"
    );
}

#[test]
fn metrics_have_an_endpoint_as_in_envoyproxy_ratelimit() {
    let at = |vars: &[(&str, &str)]| {
        read(vars).metrics.map(|metrics| format!("{}{}", metrics.address, metrics.path))
    };
    assert_eq!(at(&[]), None);
    assert_eq!(at(&[("USE_PROMETHEUS", "true")]).as_deref(), Some("0.0.0.0:9090/metrics"));
    let addr = ("PROMETHEUS_ADDR", ":9091");
    assert_eq!(at(&[addr]).as_deref(), Some("0.0.0.0:9091/metrics"));
    assert_eq!(at(&[addr, ("USE_PROMETHEUS", "false")]), None);
    let own = ("SLUICEGATE_METRICS", "127.0.0.1:9092");
    let path = ("PROMETHEUS_PATH", "/stats");
    assert_eq!(at(&[own, addr, path]).as_deref(), Some("127.0.0.1:9092/stats"));
    for (name, value) in
        [("PROMETHEUS_PATH", "stats"), ("PROMETHEUS_PATH", "/{a}"), ("PROMETHEUS_ADDR", "9090")]
    {
        assert!(wrong(&[(name, value)]).contains(&format!("got `{value}`")), "{name}");
    }
}

#[test]
fn the_operator_token_is_set_once() {
    let both = [("SLUICEGATE_ADMIN_TOKEN", "a"), ("SLUICEGATE_ADMIN_TOKEN_FILE", "/nowhere")];
    assert!(wrong(&both).contains("are both set: set only one"));
}

#[test]
fn counters_go_to_statsd_where_it_is_named() {
    let at = |vars: &[(&str, &str)]| {
        read(vars)
            .statsd
            .map(|statsd| (format!("{}:{}", statsd.host, statsd.port), statsd.flush_interval))
    };
    let ten = Duration::from_secs(10);
    assert_eq!(at(&[]), None, "there it is on by default");
    assert_eq!(at(&[("USE_STATSD", "true")]), Some(("localhost:8125".to_owned(), ten)));
    let host = ("STATSD_HOST", "statsd");
    assert_eq!(
        at(&[host, ("STATSD_PORT", "tcp://10.0.0.9:8125")]),
        Some(("statsd:8125".to_owned(), ten))
    );
    let all = [host, ("STATSD_PORT", "9125"), ("STATS_FLUSH_INTERVAL", "1s")];
    assert_eq!(at(&all), Some(("statsd:9125".to_owned(), Duration::from_secs(1))));
    let tags = read(&[host, ("EXTRA_TAGS", "zone:eu.1, env:prod")]).statsd.unwrap().tags;
    let expected =
        [("env", "prod"), ("zone", "eu_1")].map(|(key, value)| (key.into(), value.into()));
    assert_eq!(tags, expected.into());
    let error = wrong(&[host, ("EXTRA_TAGS", "zone=a")]);
    assert!(error.starts_with("EXTRA_TAGS: must be `key:value` pairs"), "{error}");
    let off = Vars::new([host, ("USE_STATSD", "true"), ("DISABLE_STATS", "true")]);
    assert_eq!(Settings::read(&off).unwrap().0.statsd, None);
    assert!(wrong(&[("USE_DOG_STATSD", "true")]).contains("set USE_STATSD=true"));
    assert!(wrong(&[("STATS_FLUSH_INTERVAL", "0s")]).contains("at least `10ms`"));
}

#[test]
fn tokens_with_roles_open_the_admin_address_to_other_hosts() {
    let admin = ("SLUICEGATE_ADMIN", "0.0.0.0:6070");
    assert!(wrong(&[admin]).contains("set SLUICEGATE_ADMIN_TOKENS"));
    let settings = read(&[admin, ("SLUICEGATE_ADMIN_TOKENS", "tokens.yaml")]);
    assert!(!settings.admin.ip().is_loopback());
}
