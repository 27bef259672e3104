//! Both ends over a pair of sockets, and a munge that is a few lines.

use std::io::Cursor;
use std::os::unix::net::UnixStream;
use std::thread;

use super::*;

const USER: u32 = 1234;

/// A site's munge: a credential is its contents behind the users of both ends.
fn seal_as(user: u32) -> impl Fn(&[u8], u32) -> Result<Vec<u8>, MungeError> {
    move |bytes, reader| Ok([PREFIX, &user.to_le_bytes(), &reader.to_le_bytes(), bytes].concat())
}

fn opened(user: u32, data: &[u8]) -> OpenedCredential {
    OpenedCredential { verdict: MungeVerdict::Valid, why: String::new(), user, data: data.to_vec() }
}

/// Opens a credential as a process of `own`.
fn open_as(own: u32) -> impl Fn(&[u8]) -> Result<OpenedCredential, MungeError> {
    move |credential| {
        let mut rest = ByteReader::new(credential);
        let read = (rest.run(PREFIX.len()), rest.u32(), rest.u32());
        let (Some(_), Some(user), Some(reader)) = read else {
            return Ok(OpenedCredential { verdict: MungeVerdict::Invalid, ..opened(0, b"") });
        };
        let verdict = if reader == own { MungeVerdict::Valid } else { MungeVerdict::Unauthorized };
        Ok(OpenedCredential { verdict, ..opened(user, rest.remaining()) })
    }
}

fn silent() -> MungeError {
    let cause = io::ErrorKind::NotFound.into();
    MungeError::Silent { socket: "/nowhere".into(), cause }
}

fn find(uid: u32) -> Result<User> {
    if uid == USER { Ok(User::Person { uid, gids: vec![7] }) } else { bail!("there is no user") }
}

/// Lets a mount of `user` meet a server of `own`, each with its munge.
fn meet(
    (user, seal): (u32, impl Fn(&[u8], u32) -> Result<Vec<u8>, MungeError> + Send + 'static),
    (own, open): (u32, impl Fn(&[u8]) -> Result<OpenedCredential, MungeError>),
) -> (Result<Vec<u8>>, Result<MungePeer>) {
    let (mut mount, mut server) = UnixStream::pair().expect("a pair");
    let mounts = thread::spawn(move || send_credential(&mut mount, user, seal));
    let magic: [u8; 16] = read(&mut server).expect("a word");
    assert_eq!(magic, MAGIC);
    let received = receive_credential(&mut server, own, open, find);
    drop(server);
    (mounts.join().expect("no panic"), received)
}

/// Returns what a mount says of a failure.
fn said(outcome: Result<Vec<u8>>) -> String {
    format!("{:#}", outcome.expect_err("refused"))
}

#[test]
fn receive_credential__a_user_of_the_site_has_the_rights_of_that_user_and_both_have_one_secret() {
    for server in [0, USER] {
        let (mount, received) = meet((USER, seal_as(USER)), (server, open_as(server)));
        let introduced = received.expect("accepted");
        assert_eq!(introduced.user, User::Person { uid: USER, gids: vec![7] });
        assert_eq!(mount.expect("accepted"), introduced.secret);
        assert_eq!(introduced.secret.len(), SECRET);
    }
}

#[test]
fn receive_credential__no_two_connections_have_the_same_secret() {
    let secret = || meet((USER, seal_as(USER)), (0, open_as(0))).0.expect("accepted");
    assert_ne!(secret(), secret());
}

#[test]
fn send_credential__a_server_of_another_user_is_given_nothing() {
    let sealed = |_: &[u8], _| -> Result<Vec<u8>, MungeError> { panic!("nothing to seal") };
    let (mount, received) = meet((USER, sealed), (77, open_as(77)));
    assert!(received.is_err());
    let said = said(mount);
    assert!(said.contains("it runs as user 77") && said.contains("--key FILE"), "{said}");
}

#[test]
fn receive_credential__who_is_refused_reads_why() {
    let (root, received) = meet((0, seal_as(0)), (0, open_as(0)));
    assert!(received.is_err());
    let said_of_root = said(root);
    assert!(said_of_root.contains("mount with a key of hosts"), "{said_of_root}");
    let (unknown, received) = meet((9, seal_as(9)), (0, open_as(0)));
    let operator = format!("{:#}", received.err().expect("refused"));
    assert_eq!(operator, "there is no user");
    let said_of_unknown = said(unknown);
    assert!(said_of_unknown.contains("does not know this user"), "{said_of_unknown}");
    let (without, received) = meet((USER, seal_as(USER)), (0, |_: &[u8]| Err(silent())));
    let operator = format!("{:#}", received.err().expect("refused"));
    assert!(operator.contains("no munged answers at /nowhere"), "{operator}");
    let said_of_server = said(without);
    assert!(said_of_server.contains("on the host of the server"), "{said_of_server}");
    let (without, received) = meet((USER, |_: &[u8], _| Err(silent())), (0, open_as(0)));
    assert!(received.is_err());
    let said_of_mount = said(without);
    assert!(said_of_mount.contains("no munged answers at /nowhere"), "{said_of_mount}");
}

#[test]
fn check_credential__each_verdict_of_munge_has_a_sentence_of_its_own() {
    let nonce = [3; NONCE];
    let good = [PURPOSE, &nonce, &[5; SECRET]].concat();
    let mut sentences = Vec::new();
    for (verdict, refusal) in [
        (MungeVerdict::Replayed, MungeRefusal::Replayed),
        (MungeVerdict::Expired, MungeRefusal::Expired),
        (MungeVerdict::Rewound, MungeRefusal::Rewound),
        (MungeVerdict::Unauthorized, MungeRefusal::OtherReader),
        (MungeVerdict::Invalid, MungeRefusal::OtherKey),
    ] {
        // Of some of them munge still tells the contents, which count for nothing.
        let judged = check_credential(&OpenedCredential { verdict, ..opened(USER, &good) }, &nonce);
        assert_eq!(judged, Err(refusal), "{verdict:?}");
        sentences.push(refusal.to_string());
    }
    sentences.sort();
    sentences.dedup();
    assert_eq!(sentences.len(), 5);
    assert_eq!(check_credential(&opened(USER, &good), &nonce), Ok((USER, vec![5; SECRET])));
}

#[test]
fn check_credential__a_credential_of_another_connection_or_program_is_refused() {
    let (nonce, secret) = ([3; NONCE], [5; SECRET]);
    let cases = [
        [PURPOSE, &[4; NONCE], &secret].concat(),
        [&b"another program: the secret of a mount 1\n"[..], &nonce, &secret].concat(),
        [PURPOSE, &nonce, &secret[1..]].concat(),
        [PURPOSE, &nonce, &secret, b"more"].concat(),
        [&nonce[..], &secret].concat(),
        PURPOSE.to_vec(),
        Vec::new(),
    ];
    for data in cases {
        let judged = check_credential(&opened(USER, &data), &nonce);
        assert_eq!(judged, Err(MungeRefusal::OtherConnection), "{data:?}");
    }
}

#[test]
fn receive_credential__a_credential_that_was_made_for_another_connection_is_refused() {
    let kept = seal_as(USER)(&[PURPOSE, &[0; NONCE], &[5; SECRET]].concat(), 0).expect("sealed");
    let (mount, received) = meet((USER, move |_: &[u8], _| Ok(kept.clone())), (0, open_as(0)));
    assert!(received.is_err());
    assert!(said(mount).contains("another connection"));
}

#[test]
fn refuse__a_server_without_munge_says_so() {
    let (mut mount, mut server) = UnixStream::pair().expect("a pair");
    assert!(refuse(&mut server).is_err());
    let outcome = send_credential(&mut mount, USER, seal_as(USER));
    assert!(said(outcome).contains("the server takes no credentials of munge"));
}

#[test]
fn from_code__each_refusal_travels_as_itself() {
    for refusal in MungeRefusal::ALL {
        assert_eq!(MungeRefusal::from_code(refusal as u8), Some(refusal));
    }
    assert_eq!(MungeRefusal::from_code(ACCEPTED), None);
    assert_eq!(MungeRefusal::from_code(200), None);
}

/// An end that says `bytes` and hears nothing.
struct Says(Cursor<Vec<u8>>);

impl Read for Says {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.0.read(bytes)
    }
}

impl Write for Says {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns whole words, what is left of them after each byte, and those with one byte changed.
fn damaged(whole: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    let cut = (0..whole.len()).map(|length| whole[..length].to_vec());
    let changed = (0..whole.len()).flat_map(|at| {
        [1, 0x80, 0xff].map(|bits| {
            let mut bytes = whole.to_vec();
            bytes[at] ^= bits;
            bytes
        })
    });
    cut.chain(changed)
}

#[test]
fn receive_credential__words_without_this_nonce_are_refused_whatever_they_are() {
    let credential = seal_as(USER)(&[PURPOSE, &[0; NONCE], &[5; SECRET]].concat(), 0);
    let credential = credential.expect("sealed");
    let whole = [&(credential.len() as u16).to_le_bytes()[..], &credential].concat();
    for bytes in damaged(&whole).chain([vec![0xff; 10_000], vec![0; 2]]) {
        let received = receive_credential(&mut Says(Cursor::new(bytes)), 0, open_as(0), find);
        assert!(received.is_err());
    }
}

#[test]
fn send_credential__no_damaged_words_of_a_server_are_accepted() {
    let whole = [hello(ACCEPTED, 0, &[7; NONCE]), vec![ACCEPTED]].concat();
    let accepted = send_credential(&mut Says(Cursor::new(whole.clone())), USER, seal_as(USER));
    assert!(accepted.is_ok());
    let nonce = HELLO - NONCE..HELLO;
    for bytes in damaged(&whole) {
        let is_nonce = bytes.len() == whole.len() && bytes[nonce.clone()] != [7; NONCE];
        let outcome = send_credential(&mut Says(Cursor::new(bytes)), USER, seal_as(USER));
        // Only the server can tell another nonce from its own.
        assert_eq!(outcome.is_ok(), is_nonce);
    }
}

#[test]
fn take__a_server_of_a_user_serves_that_user_only() {
    let nonce = [3; NONCE];
    let contents = [PURPOSE, &nonce, &[5; SECRET]].concat();
    let taken = |own| {
        let credential = seal_as(USER)(&contents, own).expect("sealed");
        take(&credential, &nonce, open_as(own), own, find).map_err(|(refusal, _)| refusal)
    };
    assert!(taken(0).is_ok() && taken(USER).is_ok());
    assert_eq!(taken(USER + 1).err(), Some(MungeRefusal::OtherUser));
}
