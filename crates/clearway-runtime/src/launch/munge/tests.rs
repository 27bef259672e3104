//! The daemon's answers as they were recorded, and a real daemon where there is one.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::Instant;

use proptest::prelude::*;

use super::*;

/// What munge 0.5.15 said of a credential for user 0 that holds `hello`: the second time that it
/// was opened.
const AGAIN: &[u8] =
    b"\x11\x14Replayed credential\0\x04\x05\0\0\0\0\x01\x2c\x04\x7f\0\0\x01k\x02\xa3<k\x02\xa3<\
    \0\0\0\0\0\0\0\0\0\0\0\0\xff\xff\xff\xff\0\0\0\x05hello";
/// Of a damaged one.
const DAMAGED: &[u8] = b"\x0e\x13Invalid credential\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\
    \xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\0\0\0\0";

#[test]
fn decoded__reads_recorded_answers() {
    let again = decoded(AGAIN).expect("whole");
    assert_eq!(
        again,
        OpenedCredential {
            code: REPLAYED,
            why: "Replayed credential".to_owned(),
            user: 0,
            data: b"hello"
        }
    );
    let damaged = decoded(DAMAGED).expect("whole").check(3, 0).unwrap_err().to_string();
    assert_eq!(damaged, "keys: munge refuses the credential of rank 3: Invalid credential");
    assert_eq!(decoded(&AGAIN[..AGAIN.len() - 1]), None);
    assert_eq!(decoded(&[AGAIN, b"x"].concat()), None);
}

#[test]
fn encoded__is_text_without_its_terminating_zero() {
    let answer = encoded(b"\0\0\0\0\0\x08MUNGE:x\0").expect("whole");
    assert_eq!(answer, (0, String::new(), &b"MUNGE:x"[..]));
    assert_eq!(encoded(b"\0\0\0\0\0\x09MUNGE:x\0"), None);
}

#[test]
fn check__only_this_users_credential_of_that_rank_is_taken() {
    let data = [0, 0, 0, 3, b'c'];
    let made_by = |user| OpenedCredential { code: 0, why: String::new(), user, data: &data };
    assert_eq!(made_by(7).check(3, 7).unwrap(), b"c");
    let of_other_user = made_by(8).check(3, 7).unwrap_err().to_string();
    assert_eq!(of_other_user, "keys: the credential of rank 3 was made for user 8, not for user 7");
    assert!(made_by(7).check(2, 7).unwrap_err().to_string().contains("made by another rank"));
}

#[test]
fn expect_plain__a_credential_that_cannot_be_opened_is_refused() {
    assert!(expect_plain(1, b"{}").is_ok());
    let said = expect_plain(1, b"MUNGE:abc:").unwrap_err().to_string();
    assert!(
        said.starts_with(
            "keys: rank 1 took part with a credential of munge, and no munged answers"
        ),
        "{said}"
    );
}

proptest! {
    #[test]
    fn decoded__any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
        let _ = (decoded(&bytes).map(|opened| opened.check(0, 0)), encoded(&bytes));
    }
}

#[test]
fn munge__a_real_daemon_opens_what_it_sealed_and_nothing_else() {
    let directory = std::env::temp_dir().join(format!("clearway-munge-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let own = |name: &str| directory.join(name);
    fs::write(own("key"), [7; 32]).unwrap();
    fs::set_permissions(own("key"), fs::Permissions::from_mode(0o600)).unwrap();
    let mut command = Command::new("/usr/sbin/munged");
    command
        .args(["--foreground", "--force"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    for (option, name) in
        [("key", "key"), ("socket", "s"), ("pid", "pid"), ("log", "log"), ("seed", "seed")]
    {
        let option =
            if option == "socket" { "--socket".to_owned() } else { format!("--{option}-file") };
        command.arg(format!("{option}={}", own(name).display()));
    }
    let Ok(mut daemon) = command.spawn() else {
        fs::remove_dir_all(&directory).unwrap();
        return eprintln!("skipped: munged is not installed");
    };
    let until = Instant::now() + Duration::from_secs(30);
    while UnixStream::connect(own("s")).is_err() {
        assert!(
            daemon.try_wait().unwrap().is_none() && Instant::now() < until,
            "munged does not come up"
        );
        std::thread::yield_now();
    }
    let munge = MungeDaemon { socket: own("s") };
    let credential = munge.seal(5, b"card").unwrap();
    let damaged = [&credential[..20], b"AAAA", &credential[24..]].concat();
    let opened: Vec<_> =
        [(5, &credential), (5, &credential), (4, &credential), (5, &damaged), (5, &b"{}".to_vec())]
            .map(|(rank, bytes)| munge.open(rank, bytes).map_err(|error| error.to_string()))
            .into();
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    fs::remove_dir_all(&directory).unwrap();
    assert_eq!(opened[..2], [Ok(b"card".to_vec()), Ok(b"card".to_vec())]);
    let said = |at: usize| opened[at].clone().unwrap_err();
    assert!(said(2).contains("made by another rank"), "{}", said(2));
    assert!(said(3).contains("munge refuses the credential of rank 5"), "{}", said(3));
    assert!(said(4).contains("without a credential of munge, which this host has"), "{}", said(4));
}
