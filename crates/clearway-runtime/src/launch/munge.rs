//! Credentials of munge around what ranks exchange: only processes of the same user can make them,
//! and only those can read them.
//!
//! # Invariants
//! I1. Where this host has munge, what comes without a credential of this user is refused; where it
//!     has none, so is what comes with one.
//!
//! # Not here
//! The order of credentials in time. A credential that was opened before on this host is taken: all
//! ranks of a host open all.

use super::LaunchError;
use crate::munge::{MungeDaemon, MungeError, MungeVerdict, OpenedCredential, PREFIX};

/// Returns a credential that holds `bytes` of `rank`, for processes of this user.
pub(super) fn seal(daemon: &MungeDaemon, rank: u32, bytes: &[u8]) -> Result<Vec<u8>, LaunchError> {
    let data = [&rank.to_be_bytes()[..], bytes].concat();
    daemon.seal(&data, own_user()).map_err(unanswered)
}

/// Returns what `rank` put into `credential`.
pub(super) fn open(
    daemon: &MungeDaemon,
    rank: u32,
    credential: &[u8],
) -> Result<Vec<u8>, LaunchError> {
    if !credential.starts_with(PREFIX) {
        let what = format!(
            "rank {rank} took part without a credential of munge, which this host has; run munged on all hosts of the job \
             or on none"
        );
        return Err(refused(what));
    }
    contribution(&daemon.open(credential).map_err(unanswered)?, rank, own_user())
}

/// Refuses what is in a credential, on a host that cannot open it.
pub(super) fn expect_plain(rank: u32, bytes: &[u8]) -> Result<(), LaunchError> {
    if !bytes.starts_with(PREFIX) {
        return Ok(());
    }
    let what = format!(
        "rank {rank} took part with a credential of munge, and no munged answers on this host; run it on all hosts of the job \
         or on none"
    );
    Err(refused(what))
}

/// Returns the user for whom the kernel vouches to the daemon.
fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

fn refused(what: String) -> LaunchError {
    LaunchError::Launcher { method: "keys", what }
}

fn unanswered(why: MungeError) -> LaunchError {
    refused(why.to_string())
}

/// Returns the bytes of `rank`, if it runs for `user`.
fn contribution(opened: &OpenedCredential, rank: u32, user: u32) -> Result<Vec<u8>, LaunchError> {
    if ![MungeVerdict::Valid, MungeVerdict::Replayed].contains(&opened.verdict) {
        return Err(refused(format!(
            "munge refuses the credential of rank {rank}: {}",
            opened.why
        )));
    }
    if opened.user != user {
        return Err(refused(format!(
            "the credential of rank {rank} was made for user {}, not for user {user}",
            opened.user
        )));
    }
    match opened.data.split_first_chunk::<4>() {
        Some((owner, bytes)) if *owner == rank.to_be_bytes() => Ok(bytes.to_vec()),
        _ => Err(refused(format!(
            "the credential of rank {rank} was made by another rank or another program"
        ))),
    }
}

#[cfg(test)]
mod tests {
    //! What a rank takes of another.

    use super::*;

    fn made_by(user: u32, data: &[u8]) -> OpenedCredential {
        let why = "the daemon's words".to_owned();
        OpenedCredential { verdict: MungeVerdict::Valid, why, user, data: data.to_vec() }
    }

    #[test]
    fn contribution__only_this_users_credential_of_that_rank_is_taken() {
        let data = [0, 0, 0, 3, b'c'];
        assert_eq!(contribution(&made_by(7, &data), 3, 7).unwrap(), b"c");
        let of_other_user = contribution(&made_by(8, &data), 3, 7).unwrap_err().to_string();
        assert_eq!(
            of_other_user,
            "keys: the credential of rank 3 was made for user 8, not for user 7"
        );
        let of_other_rank = contribution(&made_by(7, &data), 2, 7).unwrap_err().to_string();
        assert!(of_other_rank.contains("made by another rank"), "{of_other_rank}");
        assert!(contribution(&made_by(7, b"cut"), 3, 7).is_err());
    }

    #[test]
    fn contribution__of_the_daemons_verdicts_only_replayed_is_no_refusal() {
        for (verdict, is_taken) in [
            (MungeVerdict::Replayed, true),
            (MungeVerdict::Expired, false),
            (MungeVerdict::Rewound, false),
            (MungeVerdict::Unauthorized, false),
            (MungeVerdict::Invalid, false),
        ] {
            let opened = OpenedCredential { verdict, ..made_by(7, &[0, 0, 0, 3]) };
            match contribution(&opened, 3, 7) {
                Ok(_) => assert!(is_taken, "{verdict:?}"),
                Err(why) => {
                    assert!(!is_taken, "{verdict:?}");
                    assert_eq!(
                        why.to_string(),
                        "keys: munge refuses the credential of rank 3: the daemon's words"
                    );
                }
            }
        }
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
}
