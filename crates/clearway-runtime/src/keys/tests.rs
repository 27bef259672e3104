//! Which ranks end up with the same keys, which do not, and which cards are refused in which words.

use proptest::prelude::*;

use super::*;

fn job(session: u64, secret: Option<u8>) -> KeyScope {
    let secret = secret.map(|byte| JobSecret::new(vec![byte; 16]).expect("long enough"));
    KeyScope { session, epoch: 0, secret }
}

fn identities(ranks: u32) -> Vec<RankKeyPair> {
    (0..ranks)
        .map(|rank| RankKeyPair::new(Rank(rank), job(7, Some(1))).expect("a key pair"))
        .collect()
}

fn cards(identities: &[RankKeyPair]) -> Vec<Vec<u8>> {
    identities.iter().map(|identity| identity.card().to_vec()).collect()
}

fn agreed(ranks: u32) -> Vec<JobKeys> {
    let identities = identities(ranks);
    let cards = cards(&identities);
    identities.into_iter().map(|identity| identity.agree(&cards).expect("good cards")).collect()
}

/// Returns whether what `out` seals `into` opens.
fn fits(out: &Cipher, into: &Cipher) -> bool {
    let mut bytes = b"words".to_vec();
    let tag = out.seal([0; NONCE_LENGTH], b"", &mut bytes).expect("short");
    bytes.extend(tag);
    into.open([0; NONCE_LENGTH], b"", &mut bytes).is_some_and(|opened| opened == b"words")
}

#[test]
fn agree__every_pair_shares_a_key_for_each_direction_and_nobody_else_does() {
    let all: Vec<Vec<DuplexKeys>> =
        agreed(3).iter().map(|keys| keys.datagrams().collect()).collect();
    for a in 0..3 {
        for b in 0..3 {
            for (c, d) in (0..3).flat_map(|c| (0..3).map(move |d| (c, d))) {
                assert_eq!(
                    fits(&all[a][b].out, &all[c][d].into),
                    (c, d) == (b, a),
                    "{a} to {b}, read by {c} from {d}"
                );
            }
        }
    }
}

#[test]
fn agree__another_epoch_session_or_secret_gives_other_keys() {
    // The same private halves each time, so that only the context differs.
    let pair = |session, epoch, secret| {
        let job = |_| KeyScope { epoch, ..job(session, secret) };
        let exchange = |rank: u32| KeyExchange::new(&[rank as u8 + 1; 32]).expect("a pair");
        let identity =
            |rank| RankKeyPair { rank: Rank(rank), scope: job(()), exchange: exchange(rank) };
        let cards = [identity(0).card(), identity(1).card()];
        let keys = |rank| identity(rank).agree(&cards).expect("good cards");
        let first = |keys: JobKeys, peer| keys.datagrams().nth(peer).expect("a peer");
        (first(keys(0), 1).out, first(keys(1), 0).into)
    };
    let (out, into) = pair(7, 0, Some(1));
    assert!(fits(&out, &into));
    for (session, epoch, secret) in
        [(8, 0, Some(1)), (7, 1, Some(1)), (7, 0, Some(2)), (7, 0, None)]
    {
        assert!(!fits(&out, &pair(session, epoch, secret).1), "{session} {epoch} {secret:?}");
    }
}

#[test]
fn renew__a_rank_that_is_another_process_shares_new_keys_with_all_and_old_cards_are_refused() {
    let identities = identities(3);
    let old = cards(&identities);
    let mut all: Vec<JobKeys> =
        identities.into_iter().map(|own| own.agree(&old).expect("good cards")).collect();
    let before = all[0].datagrams().nth(1).expect("a peer");
    let scope = KeyScope { epoch: 2, ..job(7, Some(1)) };
    let newcomer = RankKeyPair::new(Rank(1), scope).expect("a key pair");
    let card = newcomer.card();
    let known = [(&old[0][..], 0), (&card[..], 2), (&old[2][..], 0)];
    let theirs: Vec<DuplexKeys> =
        newcomer.agree_across(&known).expect("good cards").datagrams().collect();
    for rank in [0, 2] {
        let keys = all[rank].renew(Rank(1), 2, &card).expect("a good card");
        assert!(fits(&keys.out, &theirs[rank].into) && fits(&theirs[rank].out, &keys.into));
        assert!(!fits(&before.out, &theirs[rank].into), "the keys of the process before");
        let fits_still = fits(&all[rank].datagrams().nth(1).expect("a peer").out, &keys.out);
        assert!(fits_still, "those that are kept are the new ones");
        // Said again by somebody in the middle, either card would begin numbers anew.
        for (epoch, card) in [(2, &card[..]), (0, &old[1]), (3, &old[1]), (3, &card)] {
            assert!(all[rank].renew(Rank(1), epoch, card).is_err(), "{epoch}");
        }
    }
}

fn refusal(change: impl FnOnce(&mut Vec<Vec<u8>>)) -> String {
    let mut identities = identities(3);
    let mut cards = cards(&identities);
    change(&mut cards);
    identities.remove(1).agree(&cards).expect_err("a wrong card").to_string()
}

#[test]
fn agree__says_which_card_is_wrong_and_why() {
    let foreign = "the key card of rank 2 was not made for this job: another secret, session, epoch or rank, or changed \
                   on its way";
    let other = |session, secret| {
        RankKeyPair::new(Rank(2), job(session, secret)).expect("a key pair").card().to_vec()
    };
    assert_eq!(refusal(|cards| cards[2] = other(8, Some(1))), foreign);
    assert_eq!(refusal(|cards| cards[2] = other(7, Some(2))), foreign);
    assert_eq!(refusal(|cards| cards[2] = other(7, None)), foreign);
    assert_eq!(refusal(|cards| cards[2] = cards[0].clone()), foreign, "another rank's card");
    assert_eq!(refusal(|cards| cards[2].clear()), "the key card of rank 2 is empty");
    let sentence =
        "the key card of rank 2 is of another version; start all ranks with the same program";
    assert_eq!(refusal(|cards| cards[2][0] = 2), sentence);
    let sentence = "the key card of rank 2 has another length than the launcher was given";
    assert_eq!(refusal(|cards| cards[2].truncate(48)), sentence);
    assert_eq!(refusal(|cards| cards[2].push(0)), sentence);
    let sentence = "the key card of rank 1 came back changed from the launcher's exchange";
    assert_eq!(refusal(|cards| cards[1][5] ^= 1), sentence);
    assert_eq!(
        refusal(|cards| cards.truncate(1)),
        "rank 1 is not among the 1 peers; ranks are numbered from 0"
    );
}

#[test]
fn agree__a_key_of_low_order_is_refused_even_with_a_good_proof() {
    let job_of_all = job(7, None);
    let mut cards = vec![[CARD_VERSION; CARD_LENGTH]; 2];
    cards[1][1..=PUBLIC_LENGTH].fill(0);
    let proof = job_of_all.proof(Rank(1), 0, &[0; PUBLIC_LENGTH]);
    cards[1][1 + PUBLIC_LENGTH..].copy_from_slice(&proof);
    let identity = RankKeyPair::new(Rank(0), job_of_all).expect("a key pair");
    cards[0] = identity.card();
    let sentence = identity.agree(&cards).expect_err("no key").to_string();
    assert_eq!(sentence, "the key card of rank 1 holds no usable key");
}

#[test]
fn secret__a_short_one_is_refused() {
    let sentence = JobSecret::new(vec![1; 15]).expect_err("short").to_string();
    assert_eq!(sentence, "the job secret has 15 bytes; give at least 16 random ones");
}

#[test]
fn debug__prints_no_secret() {
    let identity = RankKeyPair::new(Rank(3), job(7, Some(0xab))).expect("a key pair");
    let text = format!("{identity:?} {:?}", agreed(2)[0]);
    assert_eq!(
        text,
        "RankKeyPair(3 of KeyScope { session: 7, epoch: 0, secret: Some(JobSecret(..)) }) JobKeys(0 of 2 ranks)"
    );
}

#[test]
fn proofs__what_one_shows_is_what_the_other_expects_and_nobody_else() {
    let keys = agreed(3);
    let proofs: Vec<Vec<[[u8; 88]; 2]>> = keys.iter().map(JobKeys::proofs).collect();
    let mut shown = Vec::new();
    for (from, of_rank) in proofs.iter().enumerate() {
        for (to, [ours, _]) in of_rank.iter().enumerate() {
            assert_eq!(*ours, proofs[to][from][1], "from {from} to {to}");
            shown.push(*ours);
        }
    }
    shown.sort_unstable();
    shown.dedup();
    assert_eq!(shown.len(), 9, "each direction of each pair has its own");
    assert!(!shown.contains(&agreed(3)[0].proofs::<88>()[1][0]), "another run's are others");
}

#[test]
fn group__members_share_a_key_and_others_do_not() {
    let keys = agreed(4);
    let (key, sealed) = keys[0].make_group(GroupId(9), 5, &[Rank(1), Rank(2)]).expect("a key");
    for (member, sealed) in [1, 2].into_iter().zip(&sealed) {
        let opened = keys[member].open_group(Rank(0), sealed).expect("sealed for it");
        assert_eq!((opened.group, opened.epoch), (GroupId(9), 5));
        assert!(fits(&key.cipher, &opened.cipher));
        assert!(keys[3].open_group(Rank(0), sealed).is_none(), "for another rank");
        assert!(keys[member].open_group(Rank(3), sealed).is_none(), "from another rank");
    }
    let (other, _) = keys[0].make_group(GroupId(9), 5, &[]).expect("a key");
    assert!(!fits(&key.cipher, &other.cipher), "each key is new");
    assert!(keys[0].make_group(GroupId(9), 5, &[Rank(4)]).is_err());
}

proptest! {
    #[test]
    fn read__any_bytes_give_an_answer(card in prop::collection::vec(any::<u8>(), 0..80)) {
        prop_assert!(job(7, Some(1)).read(Rank(0), 0, &card).is_err());
    }

    #[test]
    fn open_group__any_bytes_and_any_flip_are_refused(
        bytes in prop::collection::vec(any::<u8>(), 0..100), bit in 0..8 * SEALED_GROUP_LENGTH
    ) {
        let keys = agreed(2);
        prop_assert!(keys[1].open_group(Rank(0), &bytes).is_none());
        let (_, mut sealed) = keys[0].make_group(GroupId(1), 0, &[Rank(1)]).expect("a key");
        sealed[0][bit / 8] ^= 1 << (bit % 8);
        prop_assert!(keys[1].open_group(Rank(0), &sealed[0]).is_none());
    }
}
