//! The attribute `#[task]` of the crate `starling-task`; its documentation is there.

use proc_macro::TokenStream;
use proc_macro2::TokenStream as Tokens;
use quote::{format_ident, quote};
use syn::{Attribute, Error, FnArg, Ident, ItemFn, Pat, PatType, ReturnType, Type};

/// Makes a function a task: its calls run on a cluster.
#[proc_macro_attribute]
pub fn task(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let expanded = match syn::parse::<ItemFn>(item) {
        Ok(function) => expand(&Tokens::from(arguments), function),
        Err(error) => Err(Error::new(error.span(), "only a function can be a task")),
    };
    expanded.unwrap_or_else(|error| error.to_compile_error()).into()
}

fn expand(arguments: &Tokens, function: ItemFn) -> Result<Tokens, Error> {
    if !arguments.is_empty() {
        return Err(Error::new_spanned(arguments, "the attribute `task` has no arguments"));
    }
    check(&function)?;
    let ItemFn { attrs, vis, sig, block } = function;
    let name = &sig.ident;
    let has_cx = sig.inputs.first().is_some_and(is_cx);
    let parameters: Vec<&FnArg> = sig.inputs.iter().skip(usize::from(has_cx)).collect();
    let parameters =
        parameters.into_iter().enumerate().map(parameter).collect::<Result<Vec<_>, _>>()?;
    let (names, types): (Vec<Ident>, Vec<&Type>) = parameters.into_iter().unzip();
    let kinds: Vec<Ident> = (0..names.len()).map(|k| format_ident!("Arg{k}")).collect();
    let places = 0..names.len();
    let texts: Vec<String> = names.iter().map(ToString::to_string).collect();
    let (returned, is_result) = match &sig.output {
        ReturnType::Default => (quote!(()), false),
        ReturnType::Type(_, ty) => (quote!(#ty), is_path_to(ty, "Result")),
    };
    let fallible = quote!(::starling_task::__private::Fallible);
    let (value, finish) = match is_result {
        true => (quote!(<#returned as #fallible>::Value), quote!(finish_result)),
        false => (returned.clone(), quote!(finish)),
    };
    let (docs, others): (Vec<Attribute>, Vec<Attribute>) =
        attrs.into_iter().partition(|attribute| attribute.path().is_ident("doc"));
    let inputs = &sig.inputs;
    let cx = has_cx.then(|| quote!(__cx,));
    Ok(quote! {
        #(#docs)*
        #vis fn #name<#(#kinds: ::starling_task::Arg<#types>),*>(
            #(#names: #kinds),*
        ) -> ::starling_task::Call<#value> {
            use ::starling_task::__private;
            #(#others)*
            fn __body(#inputs) -> #returned #block
            fn __run(
                __cx: &mut ::starling_task::Cx,
                __given: &mut __private::Given,
            ) -> __private::Outcome {
                let _ = (&__cx, &__given);
                #( let #names: #types = __given.take(#places, #texts)?; )*
                __private::#finish(__body(#cx #(#names),*))
            }
            static __ENTRY: __private::Entry = __private::Entry::new(
                ::core::concat!(::core::module_path!(), "::", ::core::stringify!(#name)),
                __run,
            );
            __private::inventory::submit! { __private::Registered(&__ENTRY) }
            let mut __arguments = __private::Arguments::default();
            #( __arguments.add(#names, #texts); )*
            ::starling_task::Call::new(&__ENTRY, __arguments)
        }
    })
}

fn check(function: &ItemFn) -> Result<(), Error> {
    let sig = &function.sig;
    let refuse = |what: &dyn quote::ToTokens, text: &str| Err(Error::new_spanned(what, text));
    if let Some(token) = &sig.asyncness {
        return refuse(token, "a task is no async function: it waits with `cx.get`");
    }
    if let Some(token) = &sig.unsafety {
        return refuse(token, "a task is no unsafe function");
    }
    if let Some(token) = &sig.constness {
        return refuse(token, "a task is no const function");
    }
    if !sig.generics.params.is_empty() {
        return refuse(&sig.generics, "a task has no generic parameters: it is called by its name");
    }
    match &sig.variadic {
        Some(token) => refuse(token, "a task has a fixed number of parameters"),
        None => Ok(()),
    }
}

fn is_cx(input: &FnArg) -> bool {
    match input {
        FnArg::Typed(PatType { ty, .. }) => match &**ty {
            Type::Reference(reference) => {
                reference.mutability.is_some() && is_path_to(&reference.elem, "Cx")
            }
            _ => false,
        },
        FnArg::Receiver(_) => false,
    }
}

fn is_path_to(ty: &Type, name: &str) -> bool {
    match ty {
        Type::Path(path) => path.path.segments.last().is_some_and(|last| last.ident == name),
        _ => false,
    }
}

/// The name of a parameter for callers, and its type.
fn parameter((at, input): (usize, &FnArg)) -> Result<(Ident, &Type), Error> {
    let FnArg::Typed(PatType { pat, ty, .. }) = input else {
        return Err(Error::new_spanned(input, "a task is no method"));
    };
    match &**ty {
        Type::Reference(_) => {
            let text = "a parameter of a task owns its value; only `cx: &mut Cx`, as the first, \
                        is a reference";
            return Err(Error::new_spanned(ty, text));
        }
        Type::ImplTrait(_) => {
            return Err(Error::new_spanned(ty, "a parameter of a task has one type"));
        }
        _ => {}
    }
    let name = match &**pat {
        Pat::Ident(ident) if ident.subpat.is_none() => ident.ident.clone(),
        _ => format_ident!("argument{at}"),
    };
    Ok((name, ty))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        let function = syn::parse_str::<ItemFn>(text).expect("it is a function");
        expand(&Tokens::new(), function).expect_err("it is no task").to_string()
    }

    #[test]
    fn what_no_call_can_serve_is_refused_with_the_reason() {
        assert!(refused("async fn f() {}").contains("no async function"));
        assert!(refused("fn f<T>(a: T) {}").contains("no generic parameters"));
        assert!(refused("fn f(a: &str) {}").contains("owns its value"));
        assert!(refused("fn f(&self) {}").contains("no method"));
        assert!(refused("fn f(a: impl Fn()) {}").contains("one type"));
        assert!(refused("unsafe fn f() {}").contains("no unsafe"));
        // A context that is not the first parameter is a reference like any other.
        assert!(refused("fn f(a: u8, cx: &mut Cx) {}").contains("owns its value"));
    }

    #[test]
    fn a_call_has_the_value_of_a_result_and_no_context() {
        let function = "fn f(cx: &mut Cx, (a, b): (u8, u8), n: u64) -> Result<u32, E> { todo }";
        let function = syn::parse_str::<ItemFn>(function).expect("it is a function");
        let expanded = expand(&Tokens::new(), function).expect("it is a task").to_string();
        assert!(expanded.contains("argument0 : Arg0 , n : Arg1"), "{expanded}");
        assert!(expanded.contains("Fallible > :: Value"), "{expanded}");
        assert!(expanded.contains("__body (__cx , argument0 , n)"), "{expanded}");
    }
}
