//! How the door opens and closes.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::support::Folder;
use crate::support::service::Service;
use crate::{RULES, service};

#[test]
fn without_a_word_it_is_closed() {
    let service = Service::with(&[], &[]);
    assert_eq!(service.resp, "");
    assert!(service.admin("/config").body.contains("\"resp\": null"));
}

#[test]
fn an_open_door_without_a_password_is_a_warning() {
    let mut service = Service::with(&["--resp", "0.0.0.0:0"], &[]);
    service
        .has_said("the RESP address `0.0.0.0:0` is reachable from other hosts and has no password");
    let mut service = Service::with(&[], &[("SLUICEGATE_RESP_PASSWORD", "x")]);
    service.has_said("SLUICEGATE_RESP_PASSWORD is set and has no effect");
}

/// A connection with nothing under way is closed, one that is in the middle of a command is heard.
#[test]
fn the_end_waits_for_what_has_begun() {
    let (mut service, _folder) = service(&[]);
    let connect = || TcpStream::connect(&service.resp).unwrap();
    let (mut quiet, mut busy) = (connect(), connect());
    for socket in [&mut quiet, &mut busy] {
        socket.write_all(b"PING\r\nECHO ").unwrap();
        socket.read_exact(&mut [0; 7]).unwrap();
    }
    quiet.write_all(b"hi\r\n").unwrap();
    quiet.read_exact(&mut [0; 8]).unwrap();
    service.signal("TERM");
    let mut rest = String::new();
    quiet.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "");
    busy.write_all(b"there\r\n").unwrap();
    busy.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "$5\r\nthere\r\n");
    assert_eq!(service.ends(), Some(0));
}

#[test]
fn what_was_used_outlives_a_restart() {
    let folder = Folder::new();
    let rules = folder.file("rules.yaml", RULES);
    let snapshot = format!("{}/counts", folder.path());
    for expected in
        ["*5\r\n:0\r\n:2\r\n:1\r\n", "*5\r\n:0\r\n:2\r\n:0\r\n", "*5\r\n:1\r\n:2\r\n:0\r\n"]
    {
        let args = ["--rules", &rules, "--resp", "127.0.0.1:0", "--snapshot", &snapshot];
        let mut service = Service::with(&args, &[]);
        let mut socket = TcpStream::connect(&service.resp).unwrap();
        socket.write_all(b"CL.THROTTLE k 1 1 86400\r\nQUIT\r\n").unwrap();
        let mut said = String::new();
        socket.read_to_string(&mut said).unwrap();
        assert!(said.starts_with(expected), "{said}");
        service.signal("TERM");
        assert_eq!(service.ends(), Some(0));
    }
}
