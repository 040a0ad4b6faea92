package main

var ruled = []mutant{}
