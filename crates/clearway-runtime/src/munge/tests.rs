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
            verdict: MungeVerdict::Replayed,
            why: "Replayed credential".to_owned(),
            user: 0,
            data: b"hello".to_vec()
        }
    );
    let damaged = decoded(DAMAGED).expect("whole");
    assert_eq!((damaged.verdict, &*damaged.why), (MungeVerdict::Invalid, "Invalid credential"));
    assert_eq!(decoded(&AGAIN[..AGAIN.len() - 1]), None);
    assert_eq!(decoded(&[AGAIN, b"x"].concat()), None);
}

#[test]
fn encoded__is_text_without_its_terminating_zero() {
    let answer = encoded(b"\0\0\0\0\0\x08MUNGE:x\0").expect("whole");
    assert_eq!(answer, (0, String::new(), &b"MUNGE:x"[..]));
    assert_eq!(encoded(b"\0\0\0\0\0\x09MUNGE:x\0"), None);
}

proptest! {
    #[test]
    fn decoded__any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
        let _ = (decoded(&bytes), encoded(&bytes));
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
    let munge = MungeDaemon::at(&own("s")).expect("it listens");
    let user = rustix::process::geteuid().as_raw();
    let credential = munge.seal(b"card", user).unwrap();
    let damaged = [&credential[..20], b"AAAA", &credential[24..]].concat();
    let for_other = munge.seal(b"card", user + 1).unwrap();
    let opened = [&credential, &credential, &damaged, &for_other, &b"{}".to_vec()]
        .map(|credential| munge.open(credential).unwrap());
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    fs::remove_dir_all(&directory).unwrap();
    let verdicts = opened.each_ref().map(|opened| opened.verdict);
    let [valid, replayed, .., for_other, _] = &verdicts;
    assert_eq!([*valid, *replayed], [MungeVerdict::Valid, MungeVerdict::Replayed]);
    assert_eq!((opened[0].user, &opened[0].data[..]), (user, &b"card"[..]));
    assert_eq!(*for_other, MungeVerdict::Unauthorized);
    assert_eq!([verdicts[2], verdicts[4]], [MungeVerdict::Invalid; 2]);
    let silent = munge.seal(b"card", user).unwrap_err().to_string();
    assert!(silent.contains("no munged answers at") && silent.contains("start it"), "{silent}");
}
