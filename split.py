import re
p='/work/help/wt-b/'
s=open(p+'scheduler/src/mutant.rs').read()
body=s[s.index('// The list of a mutant'):]
to_node={'SendBeforeWriting','AckBeforeDurable','IgnoreIncarnation','ReportBeforeDurable','KeepersUnreported'}
to_sim={'ClockStandsStill','RestartUnnoticed'}
# parse lists
lists=re.findall(r'((?:    ///[^\n]*\n)+)    (\w+) by (\w+) \{\n(.*?)\n    \}\n',body,re.S)
def parse(inner):
    return re.findall(r'((?:        ///[^\n]*\n)+)        (\w+) ("[\w-]+"),',inner+'\n')
node_lists={'OF_COPIES','OF_ONE_SIDE','OF_SLOWNESS','OF_NUMBERS'}
S=[];N=[];M=[];moved={}
for doc,name,by,inner in lists:
    es=parse(inner)
    keep=[];nn=[]
    for e in es:
        if e[1] in to_sim: M.append(e)
        elif e[1] in to_node: nn.append(e)
        else: keep.append(e)
    if name in node_lists:
        N.append((doc,name,by,keep))
    else:
        S.append((doc,name,by,keep))
        if nn: N.append(('',name,by,nn))
assert sum(len(parse(l[3])) for l in lists)==sum(len(x[3]) for x in S+N)+len(M)
fixed=[]
for doc,name,by,es in N:
    if name=='ALL': doc,name='    /// Mutants of the order of effects, and of packets.\n','OF_EFFECTS'
    if name=='OF_GROWTH': doc,name='    /// Mutants of keepers.\n','OF_KEEPERS'
    fixed.append((doc,name,by,es))
N=fixed
def out(ls):
    t=[]
    for doc,name,by,es in ls:
        t.append(f"{doc}    {name} by {by} {{\n"+''.join(f"{d}        {m} {n},\n" for d,m,n in es)+"    }\n")
    return '\n'.join(t)
intro="""//! Seeded bugs (mutants) of %s. Each inverts one decision, to prove that the simulator's
//! checkers find it: `starling check --mutant NAME` must fail. A real node never sets one.

// The list of a mutant determines the tests that must find it.
proto::mutants! {
    /// %s
    %s;

"""
open(p+'scheduler/src/mutant.rs','w').write(intro%("the scheduler","A seeded bug of the scheduler.","Mutant")+out(S)+"}\n")
open(p+'node/src/mutant.rs','w').write(intro%("a node","A seeded bug of a node, or of its scheduler.","Mutant, or Scheduler(scheduler::Mutant)")+out(N)+"}\n")
open(p+'sim/src/mutant.rs','w').write(intro%("a cluster","A seeded bug of a machine in the fault world, or of its node.","Mutant, or Node(node::Mutant)")+out([("    /// Mutants of machines: their clocks and their processes.\n","OF_MACHINES","Simulator",M)])+"}\n"+'''
impl Mutant {
    /// The mutant of the scheduler.
    #[must_use]
    pub const fn of_scheduler(mutant: scheduler::Mutant) -> Self {
        Self::Node(node::Mutant::Scheduler(mutant))
    }

    /// The mutant as a node gets it; `None`: a machine has the bug, and no node.
    #[must_use]
    pub(crate) const fn of_node(self) -> Option<node::Mutant> {
        match self {
            Self::Node(mutant) => Some(mutant),
            Self::ClockStandsStill | Self::RestartUnnoticed => None,
        }
    }
}

impl From<scheduler::Mutant> for Mutant {
    fn from(mutant: scheduler::Mutant) -> Self {
        Self::of_scheduler(mutant)
    }
}
''')
for n,l in (('S',S),('N',N)): print(n,[(x[1],len(x[3])) for x in l],sum(len(x[3]) for x in l))
print(len(M))
