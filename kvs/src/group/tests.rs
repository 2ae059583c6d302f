//! Simulated seeds of the group: all pass without a mutant, and each mutant is found.

use std::collections::BTreeSet;
use std::panic;

use super::replicate::GROUP_HEARTBEAT;
use super::sim::{Options, World, run};
use super::*;

/// The number of seeds in the suite; `STARLING_GROUP_SEEDS` overrides it.
const SEEDS: u64 = 2000;
/// A mutant counts as not found if this number of seeds does not reveal it.
const MUTANT_SEEDS: u64 = 4000;

fn seeds() -> u64 {
    let asked = std::env::var("STARLING_GROUP_SEEDS").ok();
    asked.map_or(SEEDS, |text| text.parse().expect("STARLING_GROUP_SEEDS is a number"))
}

#[test]
fn all_seeds_agree_and_go_on() {
    let mut seen = BTreeSet::new();
    for seed in 0..seeds() {
        match run(&Options { seed, mutant: None }) {
            Ok(some) => seen.extend(some),
            Err(what) => panic!("{what}"),
        }
    }
    for rare in
        ["start from a snapshot", "snapshot taken over", "agreed", "elected again", "other voters"]
    {
        assert!(seen.contains(rare), "no seed came by: {rare}");
    }
}

#[test]
fn a_node_with_a_slow_disk_can_lead() {
    let live = |seed, mutant| World::live_with_slow_disks(&Options { seed, mutant });
    for seed in 0..50 {
        match live(seed, None) {
            Ok(terms) => assert!(terms <= 12, "seed {seed}: {terms} terms"),
            Err(what) => panic!("seed {seed}: {what}"),
        }
    }
    for mutant in Mutant::SLOW {
        assert!((0..10).any(|seed| live(seed, Some(mutant)).is_err()), "{mutant:?} does no harm");
    }
}

#[test]
fn a_seed_repeats_itself() {
    for seed in [3, 77] {
        let trace = |seed| {
            let mut world = World::new(&Options { seed, mutant: None });
            world.live();
            format!("{:?}", world.checks)
        };
        assert_eq!(trace(seed), trace(seed));
    }
}

#[test]
fn every_bug_is_found() {
    let mut missed = Vec::new();
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|_| {})); // A failing assertion counts as a find.
    for mutant in Mutant::ALL {
        let finds = |&seed: &u64| {
            let options = Options { seed, mutant: Some(mutant) };
            !matches!(panic::catch_unwind(|| run(&options)), Ok(Ok(_)))
        };
        // Directed tests below find these. Random seeds reveal them too rarely, or contain no
        // permanent loss.
        let directed = [
            Mutant::CommitOldTerm,
            Mutant::StrandVoters,
            Mutant::FreshVotes,
            Mutant::LackingStands,
        ];
        if directed.contains(&mutant) || Mutant::SLOW.contains(&mutant) {
            continue;
        }
        match (0..MUTANT_SEEDS).find(finds) {
            Some(seed) => println!("{mutant:?} is found by seed {seed}"),
            None => missed.push(mutant),
        }
    }
    panic::set_hook(hook);
    assert_eq!(missed, [], "bugs that no seed finds");
}

/// Figure 8 of the paper: an entry of an earlier term on a majority is not committed until one of
/// the leader's own term is. Before that, another leader may still remove it.
fn commit_after_old_entry_is_everywhere(mutant: Option<Mutant>) -> (u64, u64) {
    let map = Arc::new(crate::make_replicated_map(1, 3, 2, 1));
    let entry =
        |index, term| records::entry(&wire::GroupEntry { index, term, commands: Vec::new() });
    let hard_state = wire::HardState { term: 3, ..Default::default() };
    let writes = [records::hard_state(&hard_state), entry(1, 1), entry(2, 2)];
    let stored = writes.into_iter().map(|write| Record {
        partition: write.partition,
        key: write.key,
        value: write.value.expect("they are all put"),
    });
    let start = Start { me: NodeId(0), seed: 1, map, blank: false };
    let mut now = Time(1);
    let mut group = Group::recover(start, stored.collect::<Vec<_>>(), now).unwrap();
    group.mutant = mutant;
    let told = |group: &mut Group, now: Time, term, body| {
        let message = wire::GroupMessage { term, body: Some(body) };
        group.handle(now, NodeId(1), message);
        let mut output = Output::default();
        group.flush(now, &mut output);
        group.synced(now, output.number);
    };
    now = now + Span::from_secs(1);
    group.on_time(now);
    told(&mut group, now, 4, vote_reply(true, true));
    told(&mut group, now, 4, vote_reply(false, true));
    assert!(group.is_leader() && group.term == 4 && group.log.last_index() == 3);
    told(&mut group, now, 4, append_reply(true, 2, 0));
    let before = group.commit;
    told(&mut group, now, 4, append_reply(true, 3, 0));
    (before, group.commit)
}

#[test]
fn figure_eight() {
    assert_eq!(commit_after_old_entry_is_everywhere(None), (0, 3));
    assert_eq!(commit_after_old_entry_is_everywhere(Some(Mutant::CommitOldTerm)), (2, 3));
}

/// Of three voters one has failed permanently. The map shows the other one as down although it
/// runs, and its removal is proposed first. The remaining two voters could then agree on nothing.
///
/// Returns the voters after three proposals: this one; the removal of the failed voter, before the
/// other has answered again; and the same removal after the answer.
fn voters_after_a_hasty_wish(mutant: Option<Mutant>) -> [Vec<u32>; 3] {
    let map = Arc::new(crate::make_replicated_map(1, 3, 2, 1));
    let start = Start { me: NodeId(0), seed: 1, map, blank: false };
    let mut now = Time(1);
    let mut group = Group::recover(start, [], now).unwrap();
    (group.mutant, group.plans) = (mutant, false);
    let step = |group: &mut Group, now: Time, said: Option<(u64, Body)>| {
        if let Some((term, body)) = said {
            let message = wire::GroupMessage { term, body: Some(body) };
            group.handle(now, NodeId(1), message);
        }
        let mut output = Output::default();
        group.flush(now, &mut output);
        group.synced(now, output.number);
    };
    step(&mut group, now, None);
    now = now + Span::from_secs(1);
    group.on_time(now);
    step(&mut group, now, Some((1, vote_reply(true, true))));
    step(&mut group, now, Some((1, vote_reply(false, true))));
    step(&mut group, now, Some((1, append_reply(true, 1, 0))));
    assert!(group.is_leader() && group.commit == 1);
    let wish = |voters: [u32; 2]| {
        let voters = wire::SetVoters { voters: voters.to_vec() };
        membership::command(wire::map_command::Body::SetVoters(voters))
    };
    group.propose([wish([0, 2])]);
    step(&mut group, now, None);
    let after_one = group.log.voters().to_vec();
    group.propose([wish([0, 1])]);
    step(&mut group, now, None);
    let before_an_answer = group.log.voters().to_vec();
    let earlier = now.0;
    now = now + GROUP_HEARTBEAT;
    // A late answer to a message that was sent before the proposal.
    step(&mut group, now, Some((1, append_reply(true, 1, earlier))));
    group.propose([wish([0, 1])]);
    step(&mut group, now, None);
    assert_eq!(group.log.voters(), before_an_answer);
    step(&mut group, now, Some((1, append_reply(true, 1, now.0))));
    group.propose([wish([0, 1])]);
    step(&mut group, now, None);
    [after_one, before_an_answer, group.log.voters().to_vec()]
}

#[test]
fn a_voter_that_is_needed_does_not_go() {
    let all = vec![0, 1, 2];
    assert_eq!(voters_after_a_hasty_wish(None), [all.clone(), all, vec![0, 1]]);
    let stranded = [0, 2].to_vec();
    let voters = voters_after_a_hasty_wish(Some(Mutant::StrandVoters));
    assert_eq!(voters, [stranded.clone(), stranded.clone(), stranded]);
}

/// A leader of three voters, with the planner active.
struct Leading {
    group: Group,
    now: Time,
}

impl Leading {
    fn start() -> Self {
        let map = Arc::new(crate::make_replicated_map(1, 3, 2, 1));
        let start = Start { me: NodeId(0), seed: 1, map, blank: false };
        let mut leading = Self { group: Group::recover(start, [], Time(1)).unwrap(), now: Time(1) };
        leading.flush();
        leading.pass(Span::from_secs(1));
        leading.hear(1, vote_reply(true, true));
        leading.hear(1, vote_reply(false, true));
        assert!(leading.group.is_leader());
        leading
    }
    fn flush(&mut self) {
        let mut output = Output::default();
        self.group.flush(self.now, &mut output);
        self.group.synced(self.now, output.number);
    }
    fn pass(&mut self, span: Span) {
        self.now = self.now + span;
        self.group.on_time(self.now);
        self.flush();
    }
    fn hear(&mut self, from: u32, body: Body) {
        let message = wire::GroupMessage { term: 1, body: Some(body) };
        self.group.handle(self.now, NodeId(from), message);
        self.flush();
    }
    /// Node `from` has all entries that the leader has.
    fn hear_all_of(&mut self, from: u32) {
        let (last, now) = (self.group.log.last_index(), self.now.0);
        self.hear(from, append_reply(true, last, now));
    }
    /// The leader and node 1 commit the command, and everything planned after it.
    fn agree(&mut self, command: wire::map_command::Body) {
        self.group.propose([membership::command(command)]);
        self.flush();
        for _ in 0..3 {
            self.hear_all_of(1);
        }
    }
}

/// A voter that was not removed and is to be removed now: this is a new wish. Answers from the time
/// in between do not count for it.
#[test]
fn a_wish_to_let_one_go_is_over_when_that_one_is_back() {
    use wire::map_command::Body::{Down, Up};
    let mut leading = Leading::start();
    let incarnation = |leading: &Leading| {
        let member = membership::member(&leading.group.map, NodeId(1));
        member.expect("it is a member").incarnation
    };
    let down = |leading: &mut Leading| {
        let incarnation = incarnation(leading);
        leading.agree(Down(wire::MemberDown { node: 1, incarnation }));
    };
    leading.hear_all_of(1);
    down(&mut leading);
    assert_eq!(leading.group.log.voters(), [0, 1, 2], "the third has said nothing yet");
    let incarnation = incarnation(&leading) + 1;
    leading.agree(Up(wire::MemberUp { node: 1, incarnation, store: 7, ..Default::default() }));
    leading.pass(GROUP_HEARTBEAT);
    leading.hear_all_of(2);
    leading.pass(GROUP_HEARTBEAT);
    down(&mut leading);
    assert_eq!(leading.group.log.voters(), [0, 1, 2], "the third may have gone in between");
    leading.pass(GROUP_HEARTBEAT);
    leading.hear_all_of(2);
    leading.pass(GROUP_HEARTBEAT);
    assert_eq!(leading.group.log.voters(), [0, 2]);
}

/// A voter that restarts from its written records after each message.
#[derive(Default)]
struct Restarting {
    mutant: Option<Mutant>,
    stored: BTreeMap<Vec<u8>, Record>,
}

impl Restarting {
    /// True if the voter grants its vote in response.
    fn votes(&mut self, term: u64, body: Body) -> bool {
        let now = Time(1);
        let map = Arc::new(crate::make_replicated_map(1, 3, 2, 1));
        let start = Start { me: NodeId(0), seed: 1, map, blank: false };
        let records: Vec<Record> = self.stored.values().cloned().collect();
        let mut group = Group::recover(start, records, now).unwrap();
        group.mutant = self.mutant;
        group.handle(now, NodeId(1), wire::GroupMessage { term, body: Some(body) });
        let mut output = Output::default();
        group.flush(now, &mut output);
        for Write { partition, key, value } in std::mem::take(&mut output.writes) {
            let value = value.expect("nothing is taken back");
            self.stored.insert(key.clone(), Record { partition, key, value });
        }
        group.synced(now, output.number);
        group.flush(now, &mut output);
        output.messages.iter().any(|(_, said)| {
            matches!(&said.body, Some(Body::VoteReply(reply)) if reply.granted && !reply.pre_vote)
        })
    }
}

/// The votes of a voter without records for a candidate that has entries, in four cases. The voter
/// is asked at once, after a vote for a candidate without entries, or after it has received entries
/// instead. In the fourth case the candidate knows its disk.
fn votes_of_a_fresh_one(mutant: Option<Mutant>) -> [bool; 4] {
    let ask = |last_index, last_term| {
        Body::VoteRequest(wire::VoteRequest { last_index, last_term, ..Default::default() })
    };
    let mut voter = Restarting { mutant, ..Restarting::default() };
    let at_first = voter.votes(1, ask(2, 1));
    assert!(voter.votes(2, ask(0, 0)));
    let after_a_vote = voter.votes(3, ask(2, 1));
    let mut voter = Restarting { mutant, ..Restarting::default() };
    let entries = vec![wire::GroupEntry { index: 1, term: 1, commands: Vec::new() }];
    voter.votes(1, Body::AppendEntries(wire::AppendEntries { entries, ..Default::default() }));
    let after_an_entry = voter.votes(2, ask(2, 1));
    let mut voter = Restarting { mutant, ..Restarting::default() };
    let knows_your_store = wire::VoteRequest {
        last_index: 2,
        last_term: 1,
        knows_your_store: true,
        ..Default::default()
    };
    [at_first, after_a_vote, after_an_entry, voter.votes(2, Body::VoteRequest(knows_your_store))]
}

#[test]
fn a_voter_that_may_have_lost_its_disk_elects_no_node_that_may_lack_its_entries() {
    assert_eq!(votes_of_a_fresh_one(None), [false, true, true, true]);
    assert_eq!(votes_of_a_fresh_one(Some(Mutant::FreshVotes)), [true; 4]);
}

/// A voter refuses a leader's entries because it lacks earlier ones, and learns the commit index.
/// Returns its votes for a candidate that lacks as much, and for one that has all committed
/// entries.
fn votes_of_one_that_lacks(mutant: Option<Mutant>) -> [bool; 2] {
    let ask = |last_index, last_term| {
        Body::VoteRequest(wire::VoteRequest { last_index, last_term, ..Default::default() })
    };
    let mut voter = Restarting { mutant, ..Restarting::default() };
    assert!(voter.votes(1, ask(0, 0)));
    let heard =
        wire::AppendEntries { prev_index: 4, prev_term: 1, commit: 3, ..Default::default() };
    voter.votes(1, Body::AppendEntries(heard));
    [voter.votes(2, ask(0, 0)), voter.votes(3, ask(3, 1))]
}

#[test]
fn a_voter_that_knows_of_an_agreement_elects_no_node_without_it() {
    assert_eq!(votes_of_one_that_lacks(None), [false, true]);
    assert_eq!(votes_of_one_that_lacks(Some(Mutant::LackingStands)), [true, true]);
}

/// The log removes this node's vote and restores it. The map's epoch covers the first change only,
/// or both and yet shows no vote.
#[test]
fn a_node_with_a_vote_again_does_not_retire_for_an_older_map() {
    let map = Arc::new(crate::make_replicated_map(1, 3, 2, 1));
    let start = || Start { me: NodeId(1), seed: 1, map: Arc::clone(&map), blank: false };
    let entry = |index, voters: &[u32]| {
        let voters = wire::SetVoters { voters: voters.to_vec() };
        let commands = vec![membership::command(wire::map_command::Body::SetVoters(voters))];
        wire::GroupEntry { index, term: 1, commands }
    };
    let stands_after_a_map = |changes: u64| {
        let mut group = Group::recover(start(), [], Time(1)).unwrap();
        let entries = vec![entry(1, &[0, 2]), entry(2, &[0, 1, 2])];
        let append = wire::AppendEntries { entries, ..Default::default() };
        let append = wire::GroupMessage { term: 1, body: Some(Body::AppendEntries(append)) };
        group.handle(Time(1), NodeId(0), append);
        group.retire(map.epoch + changes);
        group.deadline().is_some()
    };
    assert!(stands_after_a_map(1));
    assert!(!stands_after_a_map(2));
}

/// Uncommitted entries contain node 2's first disk, and another one before or after its removal
/// from the voters.
#[test]
fn another_disk_of_a_voter_counts_once_it_has_lost_its_vote() {
    use wire::map_command::Body::{SetVoters, Up};
    let up = |incarnation, store| {
        Up(wire::MemberUp { node: 2, incarnation, store, ..Default::default() })
    };
    let voters = || SetVoters(wire::SetVoters { voters: vec![0, 1] });
    let disk_after = |commands: Vec<wire::map_command::Body>| {
        let map = Arc::new(crate::make_replicated_map(1, 3, 2, 1));
        let start = Start { me: NodeId(1), seed: 1, map, blank: false };
        let mut group = Group::recover(start, [], Time(1)).unwrap();
        let entry = |(index, body)| {
            let commands = vec![membership::command(body)];
            wire::GroupEntry { index, term: 1, commands }
        };
        let entries = (1..).zip(commands).map(entry).collect();
        let append = Body::AppendEntries(wire::AppendEntries { entries, ..Default::default() });
        group.handle(Time(1), NodeId(0), wire::GroupMessage { term: 1, body: Some(append) });
        assert_eq!(group.commit, 0);
        group.store_of(NodeId(2)).map(|(incarnation, store)| (incarnation.0, store))
    };
    assert_eq!(disk_after(vec![voters()]), None);
    assert_eq!(disk_after(vec![up(1, 102), up(2, 7)]), Some((1, 102)));
    assert_eq!(disk_after(vec![up(1, 102), voters(), up(2, 7)]), Some((2, 7)));
}

/// Of two founders, node 0 is the only voter. It elects itself after it has lost its disk, although
/// the others had committed more without it.
#[test]
fn a_sole_voter_that_leads_retires_for_an_agreement_of_others() {
    let map = Arc::new(crate::make_replicated_map(1, 2, 2, 1));
    assert_eq!(map.voters, [0]);
    let start = Start { me: NodeId(0), seed: 1, map: Arc::clone(&map), blank: false };
    let mut group = Group::recover(start, [], Time(1)).unwrap();
    let mut now = Time(1);
    for _ in 0..8 {
        now = group.deadline().map_or(now, |at| at.max(now));
        group.on_time(now);
        let mut output = Output::default();
        group.flush(now, &mut output);
        group.synced(now, output.number);
    }
    assert!(group.is_leader());
    group.retire(map.epoch + 9);
    assert!(!group.is_leader());
}
