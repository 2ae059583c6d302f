//! The scheduling policies: their names, in the order of their numbers in events.

macro_rules! policies {
    ($($policy:ident $name:literal $help:literal,)*) => {
        /// A scheduling policy. Its number in events is its position in the table.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u8)]
        pub enum Policy {
            $(#[doc = $help] $policy,)*
        }

        impl Policy {
            pub const COUNT: usize = [$($name,)*].len();
            pub const ALL: [Self; Self::COUNT] = [$(Self::$policy,)*];

            /// The name in commands, settings and messages.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$policy => $name,)*
                }
            }
            /// A description for users.
            #[must_use]
            pub const fn help(self) -> &'static str {
                match self {
                    $(Self::$policy => $help,)*
                }
            }
            #[must_use]
            pub fn named(name: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|policy| policy.name() == name)
            }
            /// The policy with this number in events.
            #[must_use]
            pub fn numbered(number: u8) -> Option<Self> {
                Self::ALL.get(usize::from(number)).copied()
            }
        }
    };
}

// New policies are appended, because stored events contain the numbers.
policies! {
    Mlb "mlb" "Maximised load balancing: every ready task may be stolen",
    Mdl "mdl" "Maximised data locality: tasks stay with their data",
    Rlds "rlds" "A threshold between the two",
    Flds "flds" "As rlds; what waits too long for its data's node may be stolen",
    Adaptive "adaptive" "Starts as flds; turns to mdl or mlb by the bytes that move",
    Eft "eft" "Where a task is expected to end first",
}

#[cfg(test)]
mod tests {
    use super::Policy;

    #[test]
    fn names_and_numbers_lead_back_to_the_policy() {
        for (number, policy) in (0..).zip(Policy::ALL) {
            assert_eq!(Policy::named(policy.name()), Some(policy));
            assert_eq!(Policy::numbered(number), Some(policy));
            assert_eq!(policy as u8, number);
        }
        assert_eq!(Policy::numbered(Policy::COUNT as u8), None);
        assert_eq!(Policy::named("best"), None);
    }

    /// The numbers of stored events.
    #[test]
    fn the_order_of_the_policies_stays() {
        let names = ["mlb", "mdl", "rlds", "flds", "adaptive", "eft"];
        assert_eq!(Policy::ALL.map(Policy::name)[..names.len()], names);
    }

    /// The line of the example in CONTRIBUTING.md.
    #[expect(unreachable_pub, reason = "the table makes a public type")]
    mod example {
        policies! {
            Stay "stay" "Every task runs on the node that owns it",
        }

        #[test]
        fn one_line_makes_a_policy_with_a_name_and_a_help_text() {
            let stay = Policy::named("stay").expect("it is in the table");
            assert_eq!((stay, stay as u8, Policy::numbered(0)), (Policy::Stay, 0, Some(stay)));
            assert_eq!(stay.help(), "Every task runs on the node that owns it");
        }
    }
}
