package openai

// rest handles the fields that the request's own type does not know: features that exist elsewhere
// are refused by name, hints are let pass, and what nobody knows is counted.
func (o *Options) rest(m member) *Error {
	switch m.name {
	case "top_logprobs", "prompt_logprobs", "length_penalty", "truncate_prompt_tokens",
		"no_repeat_ngram_size":
		return unbuilt(m, "0")
	case "echo", "use_beam_search", "include_stop_str_in_output",
		"continue_final_message":
		return unbuilt(m, "false")
	case "skip_special_tokens", "spaces_between_special_tokens", "add_generation_prompt",
		"parallel_tool_calls":
		return unbuilt(m, "true", "false")
	case "suffix":
		return unbuilt(m, `""`)
	case "tools", "functions", "stop_token_ids", "bad_words", "documents":
		return unbuilt(m, "[]")
	case "tool_choice", "function_call":
		return unbuilt(m, `"none"`, `"auto"`)
	case "modalities":
		return unbuilt(m, `["text"]`)
	case "reasoning_effort":
		return unbuilt(m, `"none"`)
	case "chat_template_kwargs":
		return unbuilt(m, "{}")
	case "prediction", "audio", "web_search_options",
		"regex", "choice", "grammar", "guided_json", "guided_regex", "guided_choice",
		"guided_grammar", "structured_outputs", "ebnf", "json_schema", "chat_template",
		"allowed_token_ids", "kv_transfer_params", "lora_path", "mm_processor_kwargs":
		return unbuilt(m)
	case "session_id", "prompt_cache_key", "prompt_cache_retention", "safety_identifier", "store",
		"metadata", "service_tier", "verbosity":
		return nil // Hints, or labels for the client's own use.
	}
	o.Unknown++
	return nil
}
