//! redis-cli: what it prints to whoever types.

use std::process::Command;

use crate::support::server;
use crate::support::service::Service;
use crate::{port, service};

/// What redis-cli prints, as at a terminal.
fn prints(service: &Service, args: &[&str]) -> String {
    let mut command = Command::new(server("redis-cli"));
    command.args(["--no-raw", "-p", port(service)]).args(args);
    let output = command.output().unwrap();
    String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap()
}

fn five(numbers: [i64; 5]) -> String {
    let lines = numbers.iter().enumerate();
    lines.map(|(place, number)| format!("{}) (integer) {number}\n", place + 1)).collect()
}

/// The first numbers; those that depend on the time are not looked at.
fn begins(service: &Service, args: &[&str], numbers: &[i64]) {
    let said = prints(service, args);
    let expected: String = numbers
        .iter()
        .enumerate()
        .map(|(place, n)| format!("{}) (integer) {n}\n", place + 1))
        .collect();
    assert!(said.starts_with(&expected), "{args:?}: {said}");
}

#[test]
fn a_bucket_is_asked() {
    let (service, _folder) = service(&[]);
    let throttle = ["CL.THROTTLE", "user:42", "2", "3", "86400"];
    for left in [2, 1, 0] {
        begins(&service, &throttle, &[0, 3, left, -1]);
    }
    begins(&service, &throttle, &[1, 3, 0]);
    let once = prints(&service, &["cl.throttle", "user:43", "0", "1", "86400", "1"]);
    assert_eq!(once, five([0, 1, 0, -1, 86_400]));
    let never = prints(&service, &["CL.THROTTLE", "user:44", "2", "3", "86400", "4"]);
    assert_eq!(never, five([1, 3, 3, -1, 0]));
    let wrong = prints(&service, &["CL.THROTTLE", "user:42", "2", "0", "60"]);
    assert_eq!(wrong, "(error) ERR `count` must be from `1` to `9007199254740991`, got `0`\n");
}

#[test]
fn the_rules_are_asked() {
    let (service, _folder) = service(&[]);
    for left in [2, 1, 0] {
        begins(&service, &["SG.CHECK", "shop", "user=42"], &[0, 3, left, -1]);
    }
    begins(&service, &["SG.CHECK", "shop", "user=42"], &[1, 3, 0]);
    // It is the same counter at every door.
    assert_eq!(service.check("shop", "42"), 429);
    begins(&service, &["SG.REFUND", "shop", "user=42", "COST", "2"], &[0, 3, 2, -1]);
    begins(&service, &["SG.PEEK", "shop", "user=42"], &[0, 3, 2, -1]);
    assert_eq!(service.check("shop", "42"), 200);
    begins(&service, &["SG.CHECK", "shop", "plan=free", "user=42", "|", "user=7"], &[0, 2, 1, -1]);
    assert_eq!(prints(&service, &["SG.CHECK", "shop", "path=/"]), five([0, -1, -1, -1, 0]));
    assert_eq!(
        prints(&service, &["SG.CHECK", "shop", "user"]),
        "(error) ERR `user` is neither an entry nor an option; send key=value, `|` between descriptors, or COST n, HITS n, ID text\n"
    );
    let metrics = service.admin("/metrics").body;
    assert!(metrics.contains("sluicegate_calls_total{door=\"sg.check\"} 7\n"), "{metrics}");
    assert!(
        metrics
            .contains("sluicegate_call_failures_total{door=\"sg.check\",reason=\"invalid\"} 1\n")
    );
}

#[test]
fn everything_else_is_as_people_know_it() {
    let (service, _folder) = service(&[]);
    for (args, said) in [
        (&["PING"][..], "PONG\n"),
        (&["PING", "hello there"], "\"hello there\"\n"),
        (&["ECHO", "hi"], "\"hi\"\n"),
        (&["SELECT", "0"], "OK\n"),
        (&["-n", "0", "PING"], "PONG\n"),
        (&["CLIENT", "SETNAME", "me"], "OK\n"),
        (&["CLIENT", "GETNAME"], "(nil)\n"),
        (&["QUIT"], "OK\n"),
        (&["RESET"], "RESET\n"),
        (&["COMMAND", "COUNT"], "(integer) 22\n"),
        (&["GET", "a"], "(error) ERR unknown command 'GET', with args beginning with: 'a' \n"),
        (&["ECHO"], "(error) ERR wrong number of arguments for 'echo' command\n"),
        (&["HELLO", "9"], "(error) NOPROTO unsupported protocol version\n"),
    ] {
        assert_eq!(prints(&service, args), said, "{args:?}");
    }
    let info = prints(&service, &["INFO"]);
    for part in
        ["sluicegate_version:", "connected_clients:1\n", "total_commands_processed:", "entries:0"]
    {
        assert!(info.replace("\\r\\n", "\n").replace('\r', "").contains(part), "{part}: {info}");
    }
    let hello = prints(&service, &["-3", "HELLO", "3"]);
    assert!(
        hello.contains("\"proto\" => (integer) 3") && hello.contains("\"sluicegate\""),
        "{hello}"
    );
    let docs = prints(&service, &["-3", "COMMAND", "DOCS", "cl.throttle"]);
    assert!(docs.contains("key max_burst count period [quantity]"), "{docs}");
}

/// It is asked for its commands, line by line, and it must not matter to it that help for ours is
/// ours.
#[test]
fn lines_of_a_script_are_answered_in_their_order() {
    let (service, folder) = service(&[]);
    let lines: String = (0..100).map(|_| "CL.THROTTLE k 99 100 86400\nPING\n").collect();
    let script = folder.file("script", &lines);
    let mut command = Command::new(server("redis-cli"));
    command.args(["-p", port(&service)]).stdin(std::fs::File::open(script).unwrap());
    let said = String::from_utf8(command.output().unwrap().stdout).unwrap();
    let replies: Vec<&str> = said.split("PONG\n").collect();
    assert_eq!(replies.len(), 101);
    for (place, reply) in replies[..100].iter().enumerate() {
        assert!(reply.starts_with(&format!("0\n100\n{}\n-1\n", 99 - place)), "{place}: {reply}");
    }
}

#[test]
fn a_password_is_asked_for() {
    let (service, _folder) = service(&[("SLUICEGATE_RESP_PASSWORD", "open sesame")]);
    assert_eq!(prints(&service, &["PING"]), "(error) NOAUTH Authentication required.\n");
    assert_eq!(prints(&service, &["--no-auth-warning", "-a", "open sesame", "PING"]), "PONG\n");
    let user = ["--no-auth-warning", "--user", "default", "--pass", "open sesame", "PING"];
    assert_eq!(prints(&service, &user), "PONG\n");
    let wrong = prints(&service, &["--no-auth-warning", "-a", "sesame", "PING"]);
    assert!(wrong.contains("WRONGPASS") && wrong.contains("NOAUTH"), "{wrong}");
    let config = service.admin("/config").body;
    assert!(
        config.contains("\"resp_password\": \"hidden\"") && !config.contains("sesame"),
        "{config}"
    );
}
