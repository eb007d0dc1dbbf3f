//! One server: it is as asked for, does what it is told, and is gone afterwards.

use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use sluicegate_testkit::redis::{Memory, Options, Single, Tls, User};

#[test]
fn it_answers_and_is_gone_with_its_value() {
    let server = Single::start();
    assert_eq!(server.cli(&["SET", "k", "a b\r\nc"]), "OK");
    assert_eq!(server.cli(&["GET", "k"]), "a b\r\nc");
    assert_eq!(server.cli(&["GET", "nothing"]), "(nil)");
    assert_eq!(server.cli(&["RPUSH", "l", "x", "y"]), "2");
    assert_eq!(server.cli(&["LRANGE", "l", "0", "-1"]), "x\ny");
    assert!(server.cli(&["INCR", "l"]).starts_with("WRONGTYPE"), "errors are told, too");
    assert_eq!(server.url(), format!("redis://127.0.0.1:{}", server.port()));
    let (pid, folder) = (server.pid(), server.socket().parent().unwrap().to_owned());
    assert!(is_there(pid) && folder.exists());
    drop(server);
    assert!(!is_there(pid) && !folder.exists());
}

#[test]
fn a_killed_one_comes_back_at_the_same_place_with_what_was_on_disk() {
    for (appendonly, kept) in [(false, "(nil)"), (true, "v")] {
        let server = Single::with(Options { appendonly, ..Options::default() });
        server.cli(&["SET", "k", "v"]);
        let (port, pid) = (server.port(), server.pid());
        server.kill();
        assert!(!server.is_running());
        assert!(server.try_ask(&["PING"]).is_err());
        server.restart();
        assert_eq!(server.port(), port);
        assert_ne!(server.pid(), pid);
        assert_eq!(server.cli(&["GET", "k"]), kept);
    }
}

#[test]
fn a_paused_one_answers_later_and_ends_all_the_same() {
    let server = Single::start();
    server.pause();
    std::thread::scope(|scope| {
        let answer = scope.spawn(|| server.cli(&["PING"]));
        server.resume();
        assert_eq!(answer.join().unwrap(), "PONG");
    });
    server.pause();
    assert!(server.is_running());
    let pid = server.pid();
    drop(server);
    assert!(!is_there(pid));
}

#[test]
fn a_socket_instead_of_a_port() {
    let server = Single::with(Options { unix_socket: true, ..Options::default() });
    assert_eq!(server.url(), format!("unix://{}", server.socket().display()));
    assert_eq!(server.cli(&["CONFIG", "GET", "port"]), "port\n0");
    assert!(std::net::TcpStream::connect(("127.0.0.1", server.port())).is_err());
}

#[test]
fn passwords_and_users() {
    let password = Some("s3 \"cr\\et".to_owned());
    let server = Single::with(Options { password, ..Options::default() });
    assert!(server.url().starts_with("redis://:s3%20%22cr%5Cet@127.0.0.1:"), "{}", server.url());
    assert_eq!(server.cli(&["AUTH", "default", "s3 \"cr\\et"]), "OK");
    assert!(server.cli(&["AUTH", "default", "wrong"]).starts_with("WRONGPASS"));

    let user = User { name: "app".into(), password: "pw".into(), rules: "~app:* +@all".into() };
    let server = Single::with(Options { users: vec![user], ..Options::default() });
    assert!(server.url().starts_with("redis://app:pw@127.0.0.1:"), "{}", server.url());
    assert_eq!(server.cli(&["AUTH", "app", "pw"]), "OK");
    let default = server.cli(&["ACL", "LIST"]);
    assert!(default.contains("user default off"), "{default}");
}

#[test]
fn certificates_that_others_can_check() {
    for (tls, asked) in [(Tls::Server, "no"), (Tls::Mutual, "yes")] {
        let server = Single::with(Options { tls: Some(tls), ..Options::default() });
        assert_eq!(server.url(), format!("rediss://127.0.0.1:{}", server.port()));
        assert_eq!(
            server.cli(&["CONFIG", "GET", "tls-auth-clients"]),
            format!("tls-auth-clients\n{asked}")
        );
        assert_eq!(
            server.cli(&["CONFIG", "GET", "tls-port"]),
            format!("tls-port\n{}", server.port())
        );
        let files = server.tls_files();
        for file in [&files.ca, &files.client_certificate, &files.client_key] {
            assert!(std::fs::read_to_string(file).unwrap().starts_with("-----BEGIN "));
        }
    }
}

#[test]
fn a_full_one_refuses() {
    let memory = Some(Memory { max: "1mb".into(), policy: "noeviction".into() });
    let server = Single::with(Options { memory, ..Options::default() });
    let mut answers = (0..1100).map(|n| server.cli(&["SET", &format!("k{n}"), &"x".repeat(1000)]));
    let refused = answers.find(|answer| answer != "OK");
    let refused = refused.expect("a server of one megabyte does not take more than that");
    assert!(refused.starts_with("OOM"), "{refused}");
}

#[test]
fn it_counts_what_it_works() {
    let server = Single::start();
    let before = server.cpu_micros();
    server.cli(&["EVAL", "local n = 0 for i = 1, 2e7 do n = n + i end return 1", "0"]);
    assert!(server.cpu_micros() > before);
}

#[test]
#[should_panic(expected = "Bad directive")]
fn what_it_said_is_shown_when_it_cannot_start() {
    Single::with(Options { more: vec!["no-such-setting yes".to_owned()], ..Options::default() });
}

/// Whatever became of the test, even if it had no time to drop anything.
#[test]
fn it_ends_with_the_process_that_started_it() {
    const NAME: &str = "it_ends_with_the_process_that_started_it";
    const INNER: &str = "SLUICEGATE_TESTKIT_INNER";
    if std::env::var_os(INNER).is_some() {
        let server = Single::start();
        server.pause();
        println!("\nserver {} {}", server.pid(), server.socket().display());
        let _ = std::io::stdin().read_line(&mut String::new());
        return;
    }
    let mut inner = Command::new(std::env::current_exe().unwrap());
    let inner = inner.args(["--exact", NAME, "--nocapture"]).env(INNER, "1");
    let mut inner = inner.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(inner.stdout.take().unwrap()).lines().map(Result::unwrap);
    let line = lines.find(|line| line.starts_with("server ")).unwrap();
    let [_, pid, socket] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
    let mut connection = UnixStream::connect(socket).unwrap();
    connection.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    assert!(is_there(pid.parse().unwrap()));
    inner.kill().unwrap();
    inner.wait().unwrap();
    // It is paused, so it closes nothing: a connection ends only with the process, and is reset if
    // nobody ever took it.
    let end = connection.read(&mut [0]).map_err(|error| error.kind());
    assert!(matches!(end, Ok(0) | Err(ErrorKind::ConnectionReset)), "{end:?}");
}

fn is_there(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}
